//! The flags of this adapter, and the driver that is built from them.

use std::{env, fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use cloud_adapter::WrongUsage;
use ipnet::IpNet;

use crate::{
    driver::{OpenStackDriver, Settings},
    identity::{
        catalogue::Interface,
        cloud::Given,
        source::{Environment, Source},
    },
    instances::{Ipv6, Networking},
    load_balancers::settings::LoadBalancerOptions,
    provider_id::Form,
};

/// First line of every PEM certificate.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// The cloud, and how its networks are used.
#[derive(Clone, Debug, Args)]
pub struct OpenStackOptions {
    /// Name of the cloud in clouds.yaml; not needed if there is only one. Also from OS_CLOUD. Without it, and without --clouds-file, the
    /// environment replaces clouds.yaml if OS_AUTH_URL is set
    #[arg(long, value_name = "NAME", help_heading = "OpenStack")]
    cloud: Option<String>,
    /// Path of clouds.yaml with the credentials, watched while the adapter runs. Values of a secure.yaml in the same folder take
    /// precedence. Default: the path in OS_CLIENT_CONFIG_FILE; else ./clouds.yaml, ~/.config/openstack/clouds.yaml or
    /// /etc/openstack/clouds.yaml
    #[arg(long, value_name = "PATH", help_heading = "OpenStack")]
    clouds_file: Option<PathBuf>,
    /// Region of the services; takes precedence over region_name in clouds.yaml and OS_REGION_NAME
    #[arg(long, value_name = "NAME", help_heading = "OpenStack")]
    region: Option<String>,
    /// Interface of the service endpoints; takes precedence over interface in clouds.yaml and OS_INTERFACE
    #[arg(long, value_name = "INTERFACE", help_heading = "OpenStack")]
    interface: Option<Interface>,
    /// Network whose addresses become ExternalIPs of the nodes; repeatable. Floating IPs always become ExternalIPs
    #[arg(long = "public-network-name", value_name = "NAME", help_heading = "OpenStack")]
    public_network_names: Vec<String>,
    /// Network whose addresses become InternalIPs of the nodes; repeatable. Without this flag, the addresses of all networks that are not
    /// public become InternalIPs
    #[arg(long = "internal-network-name", value_name = "NAME", help_heading = "OpenStack")]
    internal_network_names: Vec<String>,
    /// CIDRs, such as 10.0.0.0/16,fd00::/8, whose addresses are listed first, in this order; other addresses follow in the order of the
    /// cloud
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', help_heading = "OpenStack")]
    address_sort_order: Vec<IpNet>,
    /// Leave out the IPv6 addresses of nodes
    #[arg(long, help_heading = "OpenStack")]
    ipv6_support_disabled: bool,
    /// Write provider IDs as openstack://REGION/ID instead of openstack:///ID, for clusters in several regions. The adapter always reads
    /// both forms
    #[arg(long, help_heading = "OpenStack")]
    regional_provider_ids: bool,
    /// ID of the router that gets the pod routes. Without this flag, the adapter does not manage routes, for a pod network that needs none
    #[arg(long, value_name = "ID", help_heading = "OpenStack")]
    router_id: Option<String>,
    #[command(flatten)]
    load_balancers: LoadBalancerOptions,
}

impl OpenStackOptions {
    /// Builds the driver without connecting to the cloud.
    pub fn driver(self) -> anyhow::Result<OpenStackDriver> {
        let source = Source::find(self.cloud.as_deref(), self.clouds_file.as_deref(), &environment());
        let source = source.map_err(WrongUsage)?;
        let given = Given { region: self.region, interface: self.interface };
        let cloud = source.read(&given).map_err(WrongUsage)?;
        let ca = cloud.ca.as_ref().map(certificates).transpose()?;
        let networking = Networking {
            public: self.public_network_names,
            internal: self.internal_network_names,
            sort_order: self.address_sort_order,
            ipv6: if self.ipv6_support_disabled { Ipv6::LeftOut } else { Ipv6::Reported },
        };
        let form = if self.regional_provider_ids { Form::Regional } else { Form::Plain };
        Ok(OpenStackDriver::new(
            cloud,
            ca,
            Settings {
                source,
                given,
                networking,
                form,
                load_balancers: self.load_balancers,
                router: self.router_id,
            },
        ))
    }
}

fn certificates(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let fault = |what: &str| WrongUsage(format!("cacert: {}{what}", path.display()));
    let pem = fs::read_to_string(path).with_context(|| fault(""))?;
    if !pem.contains(CERTIFICATE) {
        return Err(fault(": contains no PEM certificate").into());
    }
    Ok(pem.into())
}

/// The credential variables have no flags, because the command line is visible in process listings. Variables that are not Unicode are
/// skipped.
fn environment() -> Environment {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
