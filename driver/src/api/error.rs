//! Why a call failed, in words.

use std::fmt;
use std::io;
use std::time::Duration;

use ferroce_stack::verbs::{VerbsError, Wc, WcStatus};

use crate::config::ConfigError;
use crate::engine::OpenError;
use crate::identity::IdentityError;
use crate::memory::RegionError;

/// Why a call of this API failed.
#[derive(Debug)]
pub enum Error {
    /// A setting is not valid.
    Settings(ConfigError),
    /// The machine does not list its interfaces.
    Devices(IdentityError),
    /// The settings make no device.
    NoDevice,
    /// The device cannot be opened.
    Open(OpenError),
    /// Bytes of a region cannot be reached.
    Memory(RegionError),
    /// The device refuses a call; nothing has changed.
    Refused {
        /// The call.
        verb: &'static str,
        /// What of it is at fault, with the value given and what would be right.
        cause: String,
        /// The same as verbs put it.
        error: VerbsError,
    },
    /// The work queue holds as many work requests as it takes.
    QueueFull {
        /// The call.
        verb: &'static str,
        /// How many it takes.
        max_wr: u32,
    },
    /// A work request was executed and failed.
    Completion(Wc),
    /// Nothing happened for so long.
    TimedOut(Duration),
    /// Text that is not what it should be.
    Parse {
        /// What it should be.
        expected: &'static str,
        /// What it is.
        text: String,
    },
    /// The system refuses something.
    Io {
        /// What was tried.
        action: &'static str,
        /// The answer.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Settings(error) => error.fmt(f),
            Error::Devices(error) => error.fmt(f),
            Error::NoDevice => f.write_str("the settings make no device"),
            Error::Open(error) => error.fmt(f),
            Error::Memory(error) => error.fmt(f),
            Error::Refused { verb, cause, error } => write!(f, "{verb}: {cause}: {error}"),
            Error::QueueFull { verb, max_wr } => {
                write!(f, "{verb}: all {max_wr} work requests of the queue are outstanding")
            }
            Error::Completion(wc) => write!(
                f,
                "work request {} of QP {:#08x} failed: {}",
                wc.wr_id,
                wc.qp_num.0,
                status_in_words(wc.status)
            ),
            Error::TimedOut(timeout) => write!(f, "nothing happened for {timeout:?}"),
            Error::Parse { expected, text } => write!(f, "{text:?} is not {expected}"),
            Error::Io { action, source } => write!(f, "cannot {action}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            // The message has said all that these say.
            _ => None,
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Error {
        Error::Settings(error)
    }
}

impl From<IdentityError> for Error {
    fn from(error: IdentityError) -> Error {
        Error::Devices(error)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}

impl From<RegionError> for Error {
    fn from(error: RegionError) -> Error {
        Error::Memory(error)
    }
}

/// What a status says about the work request and its peer (IBA 11.6.2).
const fn status_in_words(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "it succeeded",
        WcStatus::LocLenErr => "the message is longer than its receive buffers",
        WcStatus::LocQpOpErr => "the QP cannot execute it",
        WcStatus::LocProtErr => "its local memory is not registered, or not with these rights",
        WcStatus::WrFlushErr => "the QP is in the error state",
        WcStatus::MwBindErr => "the window cannot be bound so",
        WcStatus::BadRespErr => "the peer's answer makes no sense",
        WcStatus::LocAccessErr => "the peer may not write there",
        WcStatus::RemInvReqErr => "the peer finds the request invalid",
        WcStatus::RemAccessErr => {
            "the peer's memory is not registered so, or not with these rights"
        }
        WcStatus::RemOpErr => "the peer cannot execute it",
        WcStatus::RetryExcErr => "the peer does not answer",
        WcStatus::RnrRetryExcErr => "the peer posts no receive",
        WcStatus::RemAbortErr => "the message ended half way",
        WcStatus::FatalErr => "the device is beyond repair",
        WcStatus::GeneralErr => "the device cannot say why",
        WcStatus::LocEecOpErr
        | WcStatus::LocRddViolErr
        | WcStatus::RemInvRdReqErr
        | WcStatus::InvEecnErr
        | WcStatus::InvEecStateErr
        | WcStatus::RespTimeoutErr
        | WcStatus::TmErr
        | WcStatus::TmRndvIncomplete => "a status of services that this device has not",
    }
}
