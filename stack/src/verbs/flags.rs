//! Flag sets: rights, send flags, attribute masks.

/// Flag sets with the usual set operations.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// No flag.
            pub const NONE: $name = $name(0);
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*

            /// Whether every flag of `other` is set.
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any flag of `other` is set.
            pub const fn has_any(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// The flags of both.
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The flags of `self` that are not in `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                self.with(other)
            }
        }
    };
}

flags! {
    /// Rights of a region, window or QP (`IBV_ACCESS_*`). Local reading is always allowed.
    Access {
        /// Local writing: receives, READ and atomic results.
        LOCAL_WRITE = 0,
        /// RDMA WRITE and ATOMIC WRITE from the peer.
        REMOTE_WRITE = 1,
        /// RDMA READ from the peer.
        REMOTE_READ = 2,
        /// Compare and swap, fetch and add from the peer.
        REMOTE_ATOMIC = 3,
        /// Windows may be bound to the region.
        MW_BIND = 4,
        /// Addresses are offsets from 0.
        ZERO_BASED = 5,
        /// On-demand paging; accepted, all our memory is.
        ON_DEMAND = 6,
        /// Huge pages; accepted, of no effect.
        HUGETLB = 7,
        /// FLUSH for global visibility from the peer.
        FLUSH_GLOBAL = 8,
        /// FLUSH for persistence from the peer.
        FLUSH_PERSISTENT = 9,
        /// Relaxed ordering; accepted, of no effect.
        RELAXED_ORDERING = 20,
    }
}

impl Access {
    /// The rights that let a peer in.
    pub const REMOTE: Access = Access(
        Access::REMOTE_WRITE.0
            | Access::REMOTE_READ.0
            | Access::REMOTE_ATOMIC.0
            | Access::FLUSH_GLOBAL.0
            | Access::FLUSH_PERSISTENT.0,
    );
    /// Whether every flag is one of those above, or optional.
    pub(crate) const fn is_known(self) -> bool {
        self.without(Access::KNOWN).without(Access::OPTIONAL).0 == 0
    }

    /// The first of the optional flags: unknown ones from here on are ignored, those below refused.
    pub(crate) const OPTIONAL: Access = Access(!0 << 20);
    /// Every flag below the optional ones.
    pub(crate) const KNOWN: Access = Access((1 << 10) - 1);
}

flags! {
    /// Flags of a send work request (`IBV_SEND_*`).
    SendFlags {
        /// Wait for earlier READs and atomics.
        FENCE = 0,
        /// Make a completion, where `sq_sig_all` is off.
        SIGNALED = 1,
        /// Ask for a solicited event at the peer.
        SOLICITED = 2,
        /// The bytes are taken when posted and no key is looked at.
        INLINE = 3,
    }
}

flags! {
    /// Which fields of [`super::QpAttr`] a call gives or sets (`IBV_QP_*`).
    AttrMask {
        /// `qp_state`.
        STATE = 0,
        /// `cur_qp_state`.
        CUR_STATE = 1,
        /// `en_sqd_async_notify`.
        EN_SQD_ASYNC_NOTIFY = 2,
        /// `qp_access_flags`.
        ACCESS_FLAGS = 3,
        /// `pkey_index`.
        PKEY_INDEX = 4,
        /// `port_num`.
        PORT = 5,
        /// `qkey`.
        QKEY = 6,
        /// `ah_attr`.
        AV = 7,
        /// `path_mtu`.
        PATH_MTU = 8,
        /// `timeout`.
        TIMEOUT = 9,
        /// `retry_cnt`.
        RETRY_CNT = 10,
        /// `rnr_retry`.
        RNR_RETRY = 11,
        /// `rq_psn`.
        RQ_PSN = 12,
        /// `max_rd_atomic`.
        MAX_QP_RD_ATOMIC = 13,
        /// Alternate path; checked by the transition table, of no effect.
        ALT_PATH = 14,
        /// `min_rnr_timer`.
        MIN_RNR_TIMER = 15,
        /// `sq_psn`.
        SQ_PSN = 16,
        /// `max_dest_rd_atomic`.
        MAX_DEST_RD_ATOMIC = 17,
        /// Path migration state; checked by the transition table, of no effect.
        PATH_MIG_STATE = 18,
        /// Queue sizes; no transition takes them.
        CAP = 19,
        /// `dest_qp_num`.
        DEST_QPN = 20,
        /// Rate limit; no transition of these services takes it.
        RATE_LIMIT = 25,
    }
}
