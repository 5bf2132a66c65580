//! The imports that most checks use.

pub(super) use crate::{
    api::{Api, CallError, CallResult, Mirror, Role, Watch},
    check::{Check, Need, Stop, Verdict, run},
    cluster::{Balancer, Cluster, backend, removal, tcp, udp},
    context::Context,
    expect,
    hooks::Hook,
    load::Load,
    proxy::{Action, Call, Calls, Proxy, Rule},
};
