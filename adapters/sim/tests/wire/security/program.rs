//! The program as a separate process, whose memory and files can be measured.

use std::fs;

use cloud_adapter::kit::testing::{Program, context as context_of, is_ready};
use cloud_api_proto::v1alpha1::RequestContext;
use tonic::transport::Channel;

use crate::support::PROGRAM;

pub(crate) const CLUSTER: &str = "c1";

/// Starts the program with a cloud inside its process, unless the flags set another cloud.
pub(crate) async fn start(flags: &[&str]) -> Program {
    Program::start_at(PROGRAM, flags).await
}

/// Resident memory in bytes. Source: proc(5), statm.
pub(crate) fn memory(program: &Program) -> usize {
    const PAGE: usize = 4096;
    let statm = fs::read_to_string(format!("/proc/{}/statm", program.id())).expect("it runs");
    let pages: usize = statm.split(' ').nth(1).expect("resident").parse().expect("a number");
    pages * PAGE
}

/// Number of open sockets and other files. Source: proc(5), fd.
pub(crate) fn open_files(program: &Program) -> usize {
    fs::read_dir(format!("/proc/{}/fd", program.id())).expect("it runs").count()
}

pub(crate) async fn info(channel: &Channel) -> bool {
    is_ready(channel, CLUSTER).await
}

pub(crate) fn context() -> RequestContext {
    context_of(CLUSTER)
}
