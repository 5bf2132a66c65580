//! `adapter-openstack`: the adapter for OpenStack.

use std::process::ExitCode;

use adapter_openstack::OpenStackOptions;
use clap::Parser;
use cloud_adapter::Options;

/// The adapter for OpenStack: serves the cloud contract over gRPC, and speaks to Keystone, Nova, Neutron and Octavia.
///
/// Credentials are taken from clouds.yaml, or from OS_AUTH_URL and its companions, as all OpenStack tools do: a password, a token, or an
/// application credential, which is the best. All work is in their one project and region.
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
