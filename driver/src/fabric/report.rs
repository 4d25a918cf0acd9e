//! What a member says of itself when asked: a file of JSON, complete when it has its name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::registry::{Presence, open_file};

/// A longer report, in bytes, is none: there is room for some 80,000 QPs.
const REPORT_MAX: u64 = 32 << 20;

/// What a member says of itself. Whoever reads one should not trust it: any member may have
/// written it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The member's generation.
    pub generation: u64,
    /// The number of the question it answers: see
    /// [`Member::reports_wanted`](super::Member::reports_wanted).
    pub served: u64,
    /// The process, as it knows itself.
    pub pid: u32,
    /// File name of its program.
    pub program: String,
    /// Name of its device.
    pub device: String,
    /// GIDs of the device, in the order of its table.
    pub gids: Vec<String>,
    /// Every counter of the device, by the kernel's name; those of connection management, if it
    /// has any, begin with `cm_`.
    pub counters: BTreeMap<String, u64>,
    /// Frames without effect by reason; those that have occurred.
    pub discards: BTreeMap<String, u64>,
    /// Frames it had to send that never reached anybody, by reason: `ring_full`, `unreachable`,
    /// `injected`.
    pub lost: BTreeMap<String, u64>,
    /// Its QPs, by number.
    pub qps: Vec<QpReport>,
}

/// One QP in a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpReport {
    /// Its number.
    pub qpn: u32,
    /// Service: `RC`, `UC`, `UD`, `GSI`, `XRC_INI` or `XRC_TGT`.
    #[serde(rename = "type")]
    pub qp_type: String,
    /// State: `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: String,
    /// GID of the peer it is connected to; none if it is not.
    pub peer_gid: Option<String>,
    /// QP of the peer.
    pub peer_qpn: Option<u32>,
    /// Send work requests that have not retired.
    pub sq_outstanding: u64,
    /// Receive work requests of its own queue that have not retired.
    pub rq_outstanding: u64,
    /// PSN of its next new request.
    pub sq_psn: u32,
    /// PSN it expects next.
    pub rq_psn: u32,
    /// Packets sent.
    pub sent_pkts: u64,
    /// Packets accepted.
    pub rcvd_pkts: u64,
    /// Request packets sent again.
    pub retransmitted_pkts: u64,
    /// Duplicate requests received.
    pub duplicate_request: u64,
}

impl Report {
    /// Writes it to `unfinished` and gives it its name.
    pub(super) fn write(&self, unfinished: &Path, path: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(open_file(unfinished, Presence::New)?);
        serde_json::to_writer(&mut out, self)?;
        out.flush()?;
        fs::rename(unfinished, path)
    }

    /// Reads one.
    ///
    /// # Errors
    /// `InvalidData` if it is not one or is too long; what the system says.
    pub(super) fn read(file: &File) -> io::Result<Report> {
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = Vec::new();
        file.take(REPORT_MAX).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(io::Error::from)
    }
}
