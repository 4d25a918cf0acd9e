//! Counters under the kernel's names (rxe's and mlx5's), and one for each reason to discard.

use crate::discard::Discard;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a device has counted since it was made.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            discards: [u64; Discard::ALL.len()],
        }

        impl Counters {
            /// Every counter but the discards, with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// RoCE packets sent.
    sent_pkts,
    /// RoCE packets accepted.
    rcvd_pkts,
    /// Duplicate requests.
    duplicate_request,
    /// Requests ahead of the expected PSN.
    out_of_seq_request,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// Sequence NAKs received.
    rcvd_seq_err,
    /// Sends that failed because retries ran out.
    retry_exceeded_err,
    /// Sends that failed because RNR retries ran out.
    retry_rnr_exceeded_err,
    /// Times a requester went back to an earlier packet.
    completer_retry_err,
    /// Sends that failed for another reason.
    send_err,
    /// SEND and RDMA WRITE messages sent.
    rdma_sends,
    /// Messages received that took a receive work request.
    rdma_recvs,
    /// ACK timers that ran out.
    local_ack_timeout_err,
    /// READ responses or atomic acknowledgements found missing before the timer ran out.
    implied_nak_seq_err,
    /// Request packets sent again.
    retransmitted_pkts,
    /// Packets that came ahead of a missing one and were kept.
    reordered_pkts,
    /// Congestion notifications received and acted on.
    rp_cnp_handled,
    /// Congestion notifications received that changed nothing: too soon after another, or no
    /// concern of the algorithm's.
    rp_cnp_ignored,
    /// Congestion notifications sent.
    np_cnp_sent,
    /// Packets accepted that carried a mark of congestion; counted where congestion is controlled.
    np_ecn_marked_roce_packets,
    /// Requests answered by a fatal NAK.
    resp_cqe_error,
}

/// What one QP has counted since it was made, under the names of the device's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCounters {
    /// Packets sent, requests and replies.
    pub sent_pkts: u64,
    /// Packets accepted; copies of multicast packets sent on this device are among them.
    pub rcvd_pkts: u64,
    /// Request packets sent again.
    pub retransmitted_pkts: u64,
    /// Duplicate requests.
    pub duplicate_request: u64,
}

impl Counters {
    /// Frames discarded for this reason.
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.discards[reason as usize]
    }

    /// Every reason with its count.
    pub fn discards(&self) -> impl Iterator<Item = (Discard, u64)> {
        Discard::ALL.iter().map(|&reason| (reason, self.discarded(reason)))
    }

    pub(crate) fn discard(&mut self, reason: Discard) {
        self.discards[reason as usize] += 1;
    }
}
