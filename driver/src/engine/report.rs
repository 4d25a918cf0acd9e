//! What the engine says of its device to those who look at the fabric. While nobody asks, that
//! costs one load for each batch.

use std::collections::BTreeMap;

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{QpState, QpType, Qpn};
use ferroce_stack::wire::CmMessage;

use super::batch::Inner;
use super::outbound::Lost;
use crate::fabric::{QpReport, Report};
use crate::link::LinkCounters;

/// What an engine needs to answer.
#[derive(Debug)]
pub(super) struct Reporter {
    program: String,
    device: String,
    /// The number of the last question answered.
    served: u64,
}

impl Reporter {
    pub fn new(device: &str) -> Reporter {
        let path = std::env::current_exe().unwrap_or_default();
        let program = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Reporter { program, device: device.to_owned(), served: 0 }
    }
}

impl Inner {
    /// Whether somebody has asked for a report and got none.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.member.reports_wanted() != self.reporter.served
    }

    /// Leaves a report for who has asked.
    #[cold]
    pub fn answer(&mut self) {
        self.reporter.served = self.member.reports_wanted();
        // Whoever has asked says that there was no answer.
        let _ = self.member.report(&self.describe());
    }

    fn describe(&self) -> Report {
        let Lost { ring_full, unreachable } = self.outbound.lost;
        let injected = self.outbound.injected();
        let lost = [("ring_full", ring_full), ("unreachable", unreachable), ("injected", injected)];
        let link = self.network.as_ref().map(|network| network.counters());
        let of_link = link.into_iter().flat_map(LinkCounters::iter);
        let lost_by_link = link.into_iter().flat_map(|counters| counters.lost.iter());
        let gids = (0..=u8::MAX).map_while(|index| self.device.query_gid(index));
        let counters = self.device.counters();
        let discards = counters.discards().filter(|&(_, count)| count > 0);
        let mut qpns: Vec<Qpn> = self.qps.keys().copied().collect();
        qpns.sort_unstable_by_key(|qpn| qpn.0);
        Report {
            generation: self.member.generation(),
            served: self.reporter.served,
            pid: std::process::id(),
            program: self.reporter.program.clone(),
            device: self.reporter.device.clone(),
            gids: gids.map(|entry| entry.gid.to_string()).collect(),
            counters: named(counters.iter().chain(of_link))
                .into_iter()
                .chain(self.describe_services())
                .collect(),
            discards: named(discards.map(|(reason, count)| (reason.name(), count))),
            lost: add_up(lost.into_iter().chain(lost_by_link)),
            qps: qpns.into_iter().filter_map(|qpn| self.describe_qp(qpn)).collect(),
        }
    }

    /// Counters of connection management, if there is any. Of messages, those kinds that occurred.
    fn describe_services(&self) -> Vec<(String, u64)> {
        let Some(services) = &self.services else { return Vec::new() };
        let counters = services.cm.counters();
        let kinds = CmMessage::ALL.iter().flat_map(|&kind| {
            let name = kind.name().to_lowercase();
            let received = (format!("rx_{name}"), counters.received_of(kind));
            [received, (format!("tx_{name}"), counters.sent_of(kind))]
        });
        let all = counters.iter().map(|(name, count)| (name.to_owned(), count));
        all.chain([("unsent".to_owned(), services.unsent)])
            .chain(kinds.filter(|&(_, count)| count > 0))
            .map(|(name, count)| (format!("cm_{name}"), count))
            .collect()
    }

    fn describe_qp(&self, qpn: Qpn) -> Option<QpReport> {
        let (attr, init) = self.device.query_qp(qpn).ok()?;
        let counters = self.device.qp_counters(qpn)?;
        let (sends, receives) = self.device.outstanding(qpn)?;
        let has_peer = !matches!(init.qp_type, QpType::Ud | QpType::Gsi)
            && attr.ah_attr.dgid != Gid::default();
        Some(QpReport {
            qpn: qpn.0,
            qp_type: type_name(init.qp_type).to_owned(),
            state: state_name(attr.qp_state).to_owned(),
            peer_gid: has_peer.then(|| attr.ah_attr.dgid.to_string()),
            peer_qpn: has_peer.then_some(attr.dest_qp_num.0),
            sq_outstanding: sends as u64,
            rq_outstanding: receives as u64,
            sq_psn: attr.sq_psn.value(),
            rq_psn: attr.rq_psn.value(),
            sent_pkts: counters.sent_pkts,
            rcvd_pkts: counters.rcvd_pkts,
            retransmitted_pkts: counters.retransmitted_pkts,
            duplicate_request: counters.duplicate_request,
        })
    }
}

fn named<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// As [`named`]; a link loses frames for the same reasons as an engine.
fn add_up<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in counters {
        *sums.entry(name.to_owned()).or_default() += count;
    }
    sums
}

/// As `rdma resource` and man pages write it.
fn type_name(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Gsi => "GSI",
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::XrcSend => "XRC_INI",
        QpType::XrcRecv => "XRC_TGT",
        QpType::RawPacket => "RAW_PACKET",
    }
}

fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}
