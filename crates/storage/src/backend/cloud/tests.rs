mod connections;
mod promises;
mod server;
mod trouble;
