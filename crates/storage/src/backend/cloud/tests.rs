mod promises;
mod server;
mod trouble;
