/**
 * State stores of Kafka Streams in databases of Tombolo.
 *
 * <p>{@link tombolo.kafka.TomboloStoreSuppliers}, named by {@code dsl.store.suppliers.class}, makes
 * all stores of an application so; {@link tombolo.kafka.TomboloStores} supplies single ones.
 */
package tombolo.kafka;
