//! A server and its client, which find each other by TCP or by rdma_cm.

use std::process::Command;

use super::{Ended, Fabric, Running, free_port};

/// Both, ended.
#[derive(Debug)]
pub struct Pair {
    /// Who listened.
    pub server: Ended,
    /// Who connected.
    pub client: Ended,
}

impl Pair {
    /// Runs both to their ends by `ferroce run`: `program -p PORT server…` and, once that listens,
    /// `program -p PORT client… 127.0.0.1`. Arguments are separated by spaces.
    pub fn run(fabric: &Fabric, program: &str, server: &str, client: &str) -> Pair {
        let port = free_port();
        let command = |arguments: &str| {
            let mut command = fabric.run(program);
            command.args(["-p", &port.to_string()]).args(arguments.split_whitespace());
            command
        };
        Pair::of(&mut command(server), port, command(client).arg("127.0.0.1"))
    }

    /// Runs both to their ends, the client once the server listens at `port` by TCP.
    pub fn of(server: &mut Command, port: u16, client: &mut Command) -> Pair {
        Pair::when(server, |server| server.listens(port), client)
    }

    /// Runs both to their ends, the client once somebody of the fabric listens at `port` by
    /// rdma_cm.
    pub fn by_cm(fabric: &Fabric, server: &mut Command, port: u16, client: &mut Command) -> Pair {
        Pair::when(server, |_| fabric.listens(port), client)
    }

    /// Runs both to their ends, the client once the server is ready.
    pub fn when(
        server: &mut Command,
        is_ready: impl FnMut(&Running) -> bool,
        client: &mut Command,
    ) -> Pair {
        let mut server = Running::start(server);
        // A server that ended instead shows itself below.
        server.wait_for(is_ready);
        let client = Running::start(client).wait();
        if client.check().is_err() && server.is_alive() {
            // It may wait for ever for a client that is gone.
            server.wait_shortly();
        }
        Pair { server: server.wait(), client }
    }

    /// Whether both have succeeded.
    ///
    /// # Errors
    /// If one has not: what both have said.
    pub fn check(&self) -> Result<(), String> {
        match (self.server.check(), self.client.check()) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(server), Ok(())) => Err(format!("server: {server}\nclient: {}", self.client)),
            (Ok(()), Err(client)) => Err(format!("client: {client}\nserver: {}", self.server)),
            (Err(server), Err(client)) => Err(format!("server: {server}\nclient: {client}")),
        }
    }
}
