//! How a reliable connection recovers from lost packets, as a choice.
//!
//! Go-back-N is what every RoCE device speaks. Everything else is between two of ours and has to be
//! agreed upon, which takes a mark in packets that a foreign peer sends as 0 and ignores: the seven
//! reserved bits of the BTH behind AckReq, under the ICRC. `docs/loss-recovery.md` tells what it
//! changes on the wire, and how one more is added.

/// What a device does about lost packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossRecovery {
    /// Everything from the lost packet on is sent again (IBA 9.7.5.1.1).
    #[default]
    GoBackN,
    /// Only what was lost is sent again, to peers that do the same; others get go-back-N.
    SelectiveRepeat,
}

impl LossRecovery {
    /// Every one.
    pub const ALL: [LossRecovery; 2] = [LossRecovery::GoBackN, LossRecovery::SelectiveRepeat];

    /// Its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            LossRecovery::GoBackN => "go-back-n",
            LossRecovery::SelectiveRepeat => "selective-repeat",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<LossRecovery> {
        LossRecovery::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The one whose mark this is, if it has one.
    pub fn marked(reserved7: u8) -> Option<LossRecovery> {
        LossRecovery::ALL.into_iter().find(|it| it.mark() == reserved7 && reserved7 != 0)
    }

    /// What [`Bth::reserved7`](crate::wire::Bth::reserved7) is in the packets of those that offer
    /// it: all seven bits have to be so, lest a peer that leaves something else in reserved bits be
    /// taken for one of ours.
    pub const fn mark(self) -> u8 {
        match self {
            LossRecovery::GoBackN => 0,
            LossRecovery::SelectiveRepeat => 0x01,
        }
    }
}
