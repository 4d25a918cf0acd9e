//! `librspreload.so`: preloaded into a program, it makes the program's TCP sockets rsockets.
//!
//! The program keeps numbers of its own (`numbers`): each stands for an rsocket, or for the
//! system's socket that has taken its place because nobody in the fabric has the address. The
//! calls of sockets and of files that are given such a number go to the rsocket library, those
//! with any other number to the C library; what the rsocket library itself calls always does.
//!
//! What does not work: an rsocket in a child that was forked while it was open, or after `exec`;
//! `FILE` streams of sockets, which do not call what can be preloaded. Datagram sockets stay the
//! system's, for they also ask name servers.

mod call;
mod epoll;
mod fd;
mod library;
mod numbers;
mod stream;
mod wait;
