/**
 * Tombolo for Java: an embedded LSM key-value engine whose data lives on shared storage, over its C
 * library by the foreign-function interface.
 *
 * <p>{@link tombolo.Database#open} opens a database; its {@link tombolo.Keyspace keyspaces} are
 * ordered maps of bytes. An object that is closed, or that two threads use where one may, throws.
 */
package tombolo;
