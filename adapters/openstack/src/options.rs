//! The flags that are this adapter's own, and the driver that comes of them.

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

/// How every PEM certificate begins.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Where the cloud is, and which of its networks are what.
#[derive(Clone, Debug, Args)]
pub struct OpenStackOptions {
    /// The cloud in clouds.yaml; not needed if there is but one. Also from OS_CLOUD. Without it, and without --clouds-file, OS_AUTH_URL
    /// and its companions are read from the environment
    #[arg(long, value_name = "NAME", help_heading = "OpenStack")]
    cloud: Option<String>,
    /// clouds.yaml with the credentials, followed while the adapter runs. A secure.yaml beside it comes first. Also from
    /// OS_CLIENT_CONFIG_FILE; else ./clouds.yaml, ~/.config/openstack/clouds.yaml or /etc/openstack/clouds.yaml
    #[arg(long, value_name = "PATH", help_heading = "OpenStack")]
    clouds_file: Option<PathBuf>,
    /// Region whose services are used, in place of region_name in clouds.yaml or OS_REGION_NAME
    #[arg(long, value_name = "NAME", help_heading = "OpenStack")]
    region: Option<String>,
    /// Which addresses of the services are used, in place of interface in clouds.yaml or OS_INTERFACE
    #[arg(long, value_name = "INTERFACE", help_heading = "OpenStack")]
    interface: Option<Interface>,
    /// Network whose addresses become the nodes' ExternalIPs; repeat it for several. Floating addresses always do
    #[arg(long = "public-network-name", value_name = "NAME", help_heading = "OpenStack")]
    public_network_names: Vec<String>,
    /// Network whose addresses become the nodes' InternalIPs; repeat it for several. Without it those of all networks do that are not
    /// public
    #[arg(long = "internal-network-name", value_name = "NAME", help_heading = "OpenStack")]
    internal_network_names: Vec<String>,
    /// Networks such as 10.0.0.0/16,fd00::/8 whose addresses come first, in this order; the others follow as the cloud has them
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', help_heading = "OpenStack")]
    address_sort_order: Vec<IpNet>,
    /// Leaves IPv6 addresses out
    #[arg(long, help_heading = "OpenStack")]
    ipv6_support_disabled: bool,
    /// Writes provider IDs as openstack://REGION/ID, for clusters of several regions, in place of openstack:///ID. Both are always read
    #[arg(long, help_heading = "OpenStack")]
    regional_provider_ids: bool,
    /// Router that gets the routes to the pods, by its ID. Without it there are none: the pods' network takes care of itself
    #[arg(long, value_name = "ID", help_heading = "OpenStack")]
    router_id: Option<String>,
    #[command(flatten)]
    load_balancers: LoadBalancerOptions,
}

impl OpenStackOptions {
    /// Makes the driver. Connects nowhere yet.
    ///
    /// # Errors
    /// Credentials that cannot be used, each fault with its key and what to do, as [`WrongUsage`].
    pub fn driver(self) -> anyhow::Result<OpenStackDriver> {
        let source = Source::find((self.cloud.as_deref(), self.clouds_file.as_deref()), &environment());
        let source = source.map_err(WrongUsage)?;
        let given = Given { region: self.region, interface: self.interface };
        let cloud = source.read(&given).map_err(WrongUsage)?;
        let ca = cloud.ca.as_ref().map(certificates).transpose()?;
        let networking = Networking {
            public: self.public_network_names,
            internal: self.internal_network_names,
            sort_order: self.address_sort_order,
            ipv6: if self.ipv6_support_disabled { Ipv6::LeftOut } else { Ipv6::Told },
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

/// The certificates of a file.
fn certificates(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let fault = |what: &str| WrongUsage(format!("cacert: {}{what}", path.display()));
    let pem = fs::read_to_string(path).with_context(|| fault(""))?;
    if !pem.contains(CERTIFICATE) {
        return Err(fault(": holds no PEM certificate").into());
    }
    Ok(pem.into())
}

/// The credentials' variables have no flags: whoever lists processes would read them. What is no text is not meant for us.
fn environment() -> Environment {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
