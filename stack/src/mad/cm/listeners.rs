//! Who waits for requests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::mad::{CmError, IpHeader, ListenerId, RejReason, ServiceId};

/// Listeners by service and address.
#[derive(Debug, Default)]
pub struct Listeners {
    by_id: BTreeMap<ListenerId, Listener>,
    /// An address of none is any address, and sorts first.
    by_service: BTreeMap<(ServiceId, Option<IpAddr>), ListenerId>,
    made: u64,
}

#[derive(Debug)]
struct Listener {
    service: ServiceId,
    address: Option<IpAddr>,
    backlog: u32,
    unanswered: u32,
    cookie: u64,
}

/// Who is asked, and in which words of IP.
#[derive(Debug)]
pub struct Asked {
    pub listener: ListenerId,
    pub cookie: u64,
    pub ip: Option<IpHeader>,
    pub has_room: bool,
}

impl Listeners {
    pub fn add(
        &mut self,
        service: ServiceId,
        address: Option<IpAddr>,
        backlog: u32,
        cookie: u64,
    ) -> Result<ListenerId, CmError> {
        let address = address.map(|address| address.to_canonical());
        if self.by_service.contains_key(&(service, address)) {
            return Err(CmError::InUse);
        }
        let id = ListenerId(self.made);
        self.made += 1;
        self.by_service.insert((service, address), id);
        let backlog = backlog.max(1);
        self.by_id.insert(id, Listener { service, address, backlog, unanswered: 0, cookie });
        Ok(id)
    }

    pub fn remove(&mut self, id: ListenerId) {
        if let Some(Listener { service, address, .. }) = self.by_id.remove(&id) {
            self.by_service.remove(&(service, address));
        }
    }

    /// Who listens for a request with this private data, or with which reason to reject it.
    pub fn find(&self, service: ServiceId, private_data: &[u8]) -> Result<Asked, RejReason> {
        let first = self.by_service.range((service, None)..).next();
        if first.is_none_or(|(&(known, _), _)| known != service) {
            return Err(RejReason::INVALID_SERVICE_ID);
        }
        let ip = match service.space() {
            Some(_) => IpHeader::parse(private_data),
            None => None,
        };
        if ip.is_none() && service.requires_ip_header() {
            return Err(RejReason::CONSUMER);
        }
        let destination = ip.map(|ip| ip.destination.to_canonical());
        let of = |address| self.by_service.get(&(service, address));
        let exact = destination.and_then(|address| of(Some(address)));
        let family = || destination.and_then(|address| of(Some(unspecified(address))));
        let id = exact.or_else(family).or_else(|| of(None));
        let &id = id.ok_or(RejReason::CONSUMER)?;
        let listener = &self.by_id[&id];
        let has_room = listener.unanswered < listener.backlog;
        Ok(Asked { listener: id, cookie: listener.cookie, ip, has_room })
    }

    /// Notes one more request that its owner has not answered.
    pub fn asked(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.unanswered += 1;
        }
    }

    /// Notes that a request is answered or given up.
    pub fn answered(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.unanswered -= 1;
        }
    }
}

/// Any address of the family.
fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
