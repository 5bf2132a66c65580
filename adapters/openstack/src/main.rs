//! `adapter-openstack`: the adapter for OpenStack.

use std::process::ExitCode;

use adapter_openstack::OpenStackOptions;
use clap::Parser;
use cloud_adapter::Options;

/// The adapter for OpenStack: serves the cloud contract over gRPC, and calls Keystone, Nova, Neutron and Octavia.
///
/// Credentials are read from clouds.yaml, or from OS_AUTH_URL and related variables, as by all OpenStack tools. They are a password, a
/// token, or an application credential (recommended). The adapter works in the one project and region of the credentials.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    cloud: OpenStackOptions,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Args { cloud, options } = Args::parse();
    cloud_adapter::run(&options, |_stop| async move { cloud.driver() })
}
