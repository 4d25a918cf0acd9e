//! Datagrams of a UDP socket, cut and put together by the kernel.

use std::ffi::c_int;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::drive::Wire;
use super::frame::PORT;
use super::packet::{RECEIVE_MAX, enlarge_buffers};
use super::sys;
use crate::task::{Load, Task};

/// The socket.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    there: SocketAddr,
    burst: Vec<u8>,
    /// Bytes of one datagram.
    len: usize,
    room: Vec<u8>,
}

impl Udp {
    /// Opens it at the host's address.
    pub fn open(task: &Task, load: Load) -> Result<Udp> {
        let (len, count) = load.shape();
        let socket = UdpSocket::bind((task.here.ip, PORT)).context("bind a UDP socket")?;
        socket.set_nonblocking(true)?;
        let fd = OwnedFd::from(socket);
        enlarge_buffers(&fd)?;
        sys::set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)?;
        if count > 1 {
            sys::set(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, &(len as c_int))?;
            sys::set(&fd, libc::SOL_UDP, libc::UDP_GRO, &1)?;
        }
        Ok(Udp {
            socket: UdpSocket::from(fd),
            there: SocketAddr::new(task.there.ip.into(), PORT),
            burst: vec![7; len * count],
            len,
            room: vec![0; RECEIVE_MAX],
        })
    }
}

impl Wire for Udp {
    fn send(&mut self) -> Result<usize> {
        match self.socket.send_to(&self.burst, self.there) {
            Ok(sent) => Ok(sent / self.len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error).context("send a datagram"),
        }
    }

    fn receive(&mut self) -> Result<usize> {
        match self.socket.recv(&mut self.room) {
            Ok(received) => Ok(received / self.len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error).context("receive a datagram"),
        }
    }
}
