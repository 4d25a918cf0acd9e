//! The names of settings: in the file, on the command line and in the environment.

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Addresses of the devices.
    Addr,
    /// Base of the devices' names.
    Device,
    /// The folder its members share.
    Fabric,
    /// Where frames are recorded.
    Pcap,
    /// What goes wrong on the link.
    Fault,
    /// Decides all chance.
    Seed,
    /// Largest path MTU.
    Mtu,
    /// The link to a network.
    Link,
    /// Peers that depart from the standard.
    Quirk,
    /// How congestion is controlled.
    Congestion,
    /// What addresses without a GRH mean.
    NoGrh,
    /// What is done about lost packets.
    LossRecovery,
    /// Which events are logged.
    Log,
}

impl Key {
    /// Every key.
    pub const ALL: [Key; 13] = [
        Key::Addr,
        Key::Device,
        Key::Fabric,
        Key::Pcap,
        Key::Fault,
        Key::Seed,
        Key::Mtu,
        Key::Link,
        Key::Quirk,
        Key::Congestion,
        Key::NoGrh,
        Key::LossRecovery,
        Key::Log,
    ];

    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Key::Addr => "addr",
            Key::Device => "device",
            Key::Fabric => "fabric",
            Key::Pcap => "pcap",
            Key::Fault => "fault",
            Key::Seed => "seed",
            Key::Mtu => "mtu",
            Key::Link => "link",
            Key::Quirk => "quirk",
            Key::Congestion => "congestion",
            Key::NoGrh => "no-grh",
            Key::LossRecovery => "loss-recovery",
            Key::Log => "log",
        }
    }

    /// Its flag.
    pub const fn flag(self) -> &'static str {
        match self {
            Key::Addr => "--addr",
            Key::Device => "--device",
            Key::Fabric => "--fabric",
            Key::Pcap => "--pcap",
            Key::Fault => "--fault",
            Key::Seed => "--seed",
            Key::Mtu => "--mtu",
            Key::Link => "--link",
            Key::Quirk => "--quirk",
            Key::Congestion => "--congestion",
            Key::NoGrh => "--no-grh",
            Key::LossRecovery => "--loss-recovery",
            Key::Log => "--log",
        }
    }

    /// Its variable.
    pub const fn variable(self) -> &'static str {
        match self {
            Key::Addr => "FERROCE_ADDR",
            Key::Device => "FERROCE_DEVICE",
            Key::Fabric => "FERROCE_FABRIC",
            Key::Pcap => "FERROCE_PCAP",
            Key::Fault => "FERROCE_FAULT",
            Key::Seed => "FERROCE_SEED",
            Key::Mtu => "FERROCE_MTU",
            Key::Link => "FERROCE_LINK",
            Key::Quirk => "FERROCE_QUIRK",
            Key::Congestion => "FERROCE_CONGESTION",
            Key::NoGrh => "FERROCE_NO_GRH",
            Key::LossRecovery => "FERROCE_LOSS_RECOVERY",
            Key::Log => "FERROCE_LOG",
        }
    }
}
