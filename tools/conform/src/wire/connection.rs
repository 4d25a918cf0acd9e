//! The conversation with an agent.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::agent::{Ask, LINE_MAX, Request, Said};

/// Bytes taken at a time.
const CHUNK: usize = 64 << 10;

/// A connection to an agent.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// Bytes of it that are known to have no end of a line.
    searched: usize,
    next_id: u64,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Connects to the agent there, which is lost when it does nothing for so long.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(agent: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&agent, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream, received: Vec::new(), searched: 0, next_id: 0 })
    }

    /// Asks; the answer will have the number that is returned.
    ///
    /// # Errors
    /// If the agent is lost.
    pub fn send(&mut self, ask: Ask) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let mut line = serde_json::to_vec(&Request { id, ask })?;
        line.push(b'\n');
        self.stream.write_all(&line)?;
        Ok(id)
    }

    /// Asks, and waits for the first that is said.
    ///
    /// # Errors
    /// If the agent is lost.
    pub fn ask(&mut self, ask: Ask) -> io::Result<Said> {
        self.send(ask)?;
        loop {
            if let Some(said) = self.next()? {
                return Ok(said);
            }
            self.read()?;
        }
    }

    /// Takes what has been said; waits if that is nothing.
    ///
    /// # Errors
    /// If the agent is lost.
    pub fn read(&mut self) -> io::Result<()> {
        let len = self.received.len();
        self.received.resize(len + CHUNK, 0);
        let outcome = self.stream.read(&mut self.received[len..]);
        self.received.truncate(len + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if self.received.len() > LINE_MAX + CHUNK => {
                Err(io::ErrorKind::InvalidData.into())
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether a whole line is here.
    pub fn has_next(&self) -> bool {
        self.received.contains(&b'\n')
    }

    /// The next of the lines that are here.
    ///
    /// # Errors
    /// If it is none of an agent's.
    pub fn next(&mut self) -> io::Result<Option<Said>> {
        let rest = &self.received[self.searched..];
        let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.received.len();
            return Ok(None);
        };
        let line: Vec<u8> = self.received.drain(..=self.searched + at).collect();
        self.searched = 0;
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
