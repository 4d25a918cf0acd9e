//! What one runner wants, line by line.

use std::collections::VecDeque;

use ferroce_conform::agent::{Ask, Hello, LINE_MAX, Request, Said, VERSION};
use ferroce_conform::target::Reply;

use crate::device::{Address, Device};
use crate::error::CallError;
use crate::qp::Path;
use crate::scenario::Scenario;

/// The agent's side of a conversation, without the connection.
#[derive(Debug)]
pub struct Session<'a> {
    device: &'a Device,
    /// Of its addresses, only the one at this place may be used.
    index: Option<u8>,
    /// The one that is used.
    address: Address,
    /// Once the first has begun.
    pub scenario: Option<Scenario<'a>>,
    received: Vec<u8>,
    /// Bytes of it without an end of a line.
    searched: usize,
    /// Lines to be sent.
    pub said: VecDeque<String>,
}

impl<'a> Session<'a> {
    /// One in which nothing has been said. The address is used until another is asked for, which
    /// must be at this place, if one is given.
    pub fn new(device: &'a Device, index: Option<u8>, address: Address) -> Session<'a> {
        Session {
            device,
            index,
            address,
            scenario: None,
            received: Vec::new(),
            searched: 0,
            said: VecDeque::new(),
        }
    }

    /// Takes what has come, and answers the lines that are whole. False if this is no conversation.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        self.received.extend_from_slice(bytes);
        loop {
            let rest = &self.received[self.searched..];
            let Some(at) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let line: Vec<u8> = self.received.drain(..=self.searched + at).collect();
            self.searched = 0;
            self.answer(&line);
        }
        self.searched = self.received.len();
        self.searched <= LINE_MAX
    }

    fn answer(&mut self, line: &[u8]) {
        let said = match serde_json::from_slice::<Request>(line) {
            Ok(request) => self.carry_out(request),
            Err(error) => Said::Wrong { id: None, error: format!("no request: {error}") },
        };
        self.say(&said);
        self.look();
    }

    fn carry_out(&mut self, Request { id, ask }: Request) -> Said {
        let reply = match ask {
            Ask::Hello { version, target } => return self.hello(id, version, target),
            Ask::Begin { peer } => {
                // What is there goes before there is anything new.
                self.scenario = None;
                let path = Path { index: self.address.index, peer };
                Scenario::new(self.device, path).map(|scenario| {
                    self.scenario = Some(scenario);
                    Reply::Done
                })
            }
            Ask::Call(call) => match &mut self.scenario {
                Some(scenario) => scenario.call(&call),
                None => Err(CallError::Wrong("no scenario has begun".to_owned())),
            },
        };
        match reply.or_else(CallError::into_reply) {
            Ok(reply) => Said::Reply { id, reply },
            Err(error) => Said::Wrong { id: Some(id), error },
        }
    }

    fn hello(&mut self, id: u64, version: u32, target: Option<[u8; 16]>) -> Said {
        let wrong = |error: String| Said::Wrong { id: Some(id), error };
        if version != VERSION {
            return wrong(format!("the agent speaks version {VERSION}, not {version}"));
        }
        match self.device.address(self.index, target) {
            Ok(address) => self.address = address,
            Err(error) => return wrong(error.to_string()),
        }
        Said::Hello(Hello {
            version: VERSION,
            name: self.device.description(),
            gid: self.address.gid,
            mtu: self.device.mtu(),
            features: self.device.features(),
        })
    }

    fn say(&mut self, said: &Said) {
        // Numbers and strings are always JSON.
        if let Ok(line) = serde_json::to_string(said) {
            self.said.push_back(line + "\n");
        }
    }

    /// Tells what has completed and happened.
    pub fn look(&mut self) {
        let Some(scenario) = &mut self.scenario else { return };
        let mut news = Vec::new();
        match scenario.hear_completions().and_then(|()| scenario.completions()) {
            Ok(completions) => news.extend(completions.into_iter().map(Said::Completion)),
            Err(error) => {
                let error = format!("{error:?}");
                news.push(Said::Wrong { id: None, error });
            }
        }
        while let Some(event) = scenario.event() {
            news.push(Said::Event(event));
        }
        if let Some(cm) = &mut scenario.cm {
            news.extend(cm.reports().map(Said::Report));
        }
        for said in &news {
            self.say(said);
        }
    }
}
