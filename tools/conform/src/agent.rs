//! What runner and agent say to each other: lines of JSON over one TCP connection, one
//! [`Request`] a line from the runner, one [`Said`] a line from the agent.
//!
//! The agent answers every request with one [`Said::Reply`], [`Said::Hello`] or [`Said::Wrong`], in
//! the order they came. Completions, events and reports come between, as they happen.

use serde::{Deserialize, Serialize};

use crate::cm::Report;
use crate::target::{Call, Completion, Event, Reply};

/// Version of what they say.
pub const VERSION: u32 = 2;

/// Where an agent listens unless told.
pub const PORT: u16 = 4780;

/// The longest line either takes, in bytes.
pub const LINE_MAX: usize = 32 << 20;

/// What the runner wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Request {
    /// Comes back with the answer.
    pub id: u64,
    /// What.
    pub ask: Ask,
}

/// What the runner can want.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The first of a connection. The answer is [`Said::Hello`].
    Hello {
        /// [`VERSION`] of the runner.
        version: u32,
        /// The address under which the target is to be reached, as a GID; else the agent chooses.
        target: Option<[u8; 16]>,
    },
    /// All objects are destroyed, another scenario begins.
    Begin {
        /// GID of the peer that its QPs are connected to.
        peer: [u8; 16],
    },
    /// A verb.
    Call(Call),
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// Answer to [`Ask::Hello`].
    Hello(Hello),
    /// Answer to any other.
    Reply {
        /// Of the request.
        id: u64,
        /// The verb's answer.
        reply: Reply,
    },
    /// A request that cannot be carried out, or is none.
    Wrong {
        /// Of the request; none if it could not be read.
        id: Option<u64>,
        /// Why.
        error: String,
    },
    /// A work request completed.
    Completion(Completion),
    /// Something happened.
    Event(Event),
    /// Something happened to a connection.
    Report(Report),
}

/// Who the agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Hello {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// Device and system, such as `rxe0, Linux 6.12.9`.
    pub name: String,
    /// Its address.
    pub gid: [u8; 16],
    /// The largest path MTU of its port, in bytes.
    pub mtu: u32,
    /// The words for `needs` that it fulfils.
    pub features: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_lines() {
        let call = Call::RegMr {
            memory: "m".into(),
            pd: "pd".into(),
            length: 64,
            iova: Some(u64::MAX),
            access: 7,
            holds: vec![1, 2],
        };
        let request = Request { id: 7, ask: Ask::Call(call) };
        let line = serde_json::to_string(&request).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        let said = Said::Reply { id: 7, reply: Reply::Counter { value: None } };
        let line = serde_json::to_string(&said).unwrap();
        assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
    }
}
