//! The addresses of the services, selected from the catalogue of a token by type, region and interface.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cloud_adapter::driver::{Fault, VendorError};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    /// Nova. Paths begin after the version, such as `/servers/detail`. In some clouds the address also contains the project.
    Compute,
    /// Neutron. Paths begin with the version, such as `/v2.0/ports`.
    Network,
    /// Octavia. Paths begin with the version, such as `/v2/lbaas/loadbalancers`. The path `/` lists the versions.
    LoadBalancer,
    /// Keystone. Paths begin after the version, such as `/auth/tokens`.
    Identity,
}

impl Service {
    pub(crate) const ALL: [Self; 4] = [Self::Compute, Self::Network, Self::LoadBalancer, Self::Identity];

    /// The service's type in the catalogue. Source: OpenStack service types authority.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
            Self::Identity => "identity",
        }
    }

    /// The key in clouds.yaml that replaces the address of the catalogue.
    pub(crate) fn override_key(self) -> &'static str {
        match self {
            Self::Compute => "compute_endpoint_override",
            Self::Network => "network_endpoint_override",
            Self::LoadBalancer => "load_balancer_endpoint_override",
            Self::Identity => "identity_endpoint_override",
        }
    }

    /// Returns the base for the paths of a service. In some clouds, the address contains the version, the project or a trailing slash, and
    /// in other clouds it does not.
    pub(crate) fn base(self, url: &str) -> String {
        let url = url.trim_end_matches('/');
        let (root, rest) = before_version(url);
        match (self, rest) {
            (Self::Network | Self::LoadBalancer, _) => root.to_owned(),
            (Self::Identity, _) => format!("{root}/v3"),
            (Self::Compute, "") => format!("{root}/v2.1"),
            // Nova's API v2, from before 2015, has no microversions. The adapter calls v2.1 instead.
            (Self::Compute, rest) if rest == "/v2" || rest.starts_with("/v2/") => {
                format!("{root}/v2.1{}", rest.trim_start_matches("/v2"))
            }
            (Self::Compute, _) => url.to_owned(),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The interface of a service, which selects one of its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Interface {
    /// Public endpoints
    #[default]
    Public,
    /// Endpoints inside the cloud's network
    Internal,
    /// Endpoints for operators
    Admin,
}

impl Interface {
    /// Parses an interface of clouds.yaml. The form `publicURL` is an older form of `public`, and likewise for the other interfaces.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text.trim_end_matches("URL") {
            "public" => Some(Self::Public),
            "internal" => Some(Self::Internal),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}

/// A service in the answer to a log-in.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

impl Endpoint {
    fn regions(&self) -> impl Iterator<Item = &str> {
        [&self.region_id, &self.region].into_iter().flatten().map(String::as_str)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoints {
    bases: BTreeMap<Service, String>,
    /// The reasons why services have no address.
    missing: BTreeMap<Service, String>,
}

impl Endpoints {
    /// Selects the addresses for a region and an interface; overrides take precedence over the catalogue.
    pub(crate) fn find(
        catalogue: &[Entry],
        region: &str,
        interface: Interface,
        overrides: &BTreeMap<Service, String>,
    ) -> Self {
        let (mut bases, mut missing) = (BTreeMap::new(), BTreeMap::new());
        for service in Service::ALL {
            match overrides
                .get(&service)
                .cloned()
                .map_or_else(|| pick(catalogue, service, region, interface), Ok)
            {
                Ok(url) => bases.insert(service, service.base(&url)),
                Err(why) => missing.insert(service, why),
            };
        }
        Self { bases, missing }
    }

    pub(crate) fn base(&self, service: Service) -> Result<&str, VendorError> {
        let missing = || {
            let why = self.missing.get(&service).map_or("", String::as_str);
            VendorError::new(Fault::Unsupported, why)
        };
        self.bases.get(&service).map(String::as_str).ok_or_else(missing)
    }
}

fn pick(catalogue: &[Entry], service: Service, region: &str, interface: Interface) -> Result<String, String> {
    let endpoints: Vec<&Endpoint> = catalogue
        .iter()
        .filter(|entry| entry.kind == service.word())
        .flat_map(|entry| &entry.endpoints)
        .filter(|endpoint| endpoint.interface.trim_end_matches("URL") == interface.word())
        .collect();
    if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.regions().any(|one| one == region)) {
        return Ok(endpoint.url.clone());
    }
    let regions: BTreeSet<&str> = endpoints.iter().flat_map(|endpoint| endpoint.regions()).collect();
    let interface = interface.word();
    let fix = format!("set region_name or interface, or set {} to its address", service.override_key());
    Err(if regions.is_empty() {
        format!("the catalogue has no {service} service for interface {interface}: {fix}")
    } else {
        let regions: Vec<&str> = regions.into_iter().collect();
        let regions = regions.join(", ");
        format!(
            "the catalogue has no {service} service in region {region} for interface {interface}, \
             only in {regions}: {fix}"
        )
    })
}

/// Splits an address before its first path segment that is a version.
fn before_version(url: &str) -> (&str, &str) {
    let path = url.find("://").map_or(0, |at| at.saturating_add(3));
    let slashes = url.match_indices('/').map(|(at, _)| at).filter(|at| *at >= path);
    for at in slashes {
        let (root, rest) = url.split_at(at);
        let segment = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
        if is_version(segment) {
            return (root, rest);
        }
    }
    (url, "")
}

/// Returns whether a segment is a version, such as `v2`, `v2.0` or `v3`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|number| {
        number.starts_with(|one: char| one.is_ascii_digit())
            && number.chars().all(|one| one.is_ascii_digit() || one == '.')
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn service_addresses_are_normalised() {
        for (service, url, wanted) in [
            (Service::Compute, "https://c.example/compute/v2.1/", "https://c.example/compute/v2.1"),
            (Service::Compute, "https://c.example:8774/v2.1/0f3a", "https://c.example:8774/v2.1/0f3a"),
            (Service::Compute, "https://c.example/compute", "https://c.example/compute/v2.1"),
            (Service::Compute, "http://c.example/v2/0f3a", "http://c.example/v2.1/0f3a"),
            (Service::Compute, "http://v2.example/nova", "http://v2.example/nova/v2.1"),
            (Service::Network, "https://c.example:9696/", "https://c.example:9696"),
            (Service::Network, "https://c.example/networking/v2.0", "https://c.example/networking"),
            (Service::LoadBalancer, "https://c.example/load-balancer", "https://c.example/load-balancer"),
            (
                Service::LoadBalancer,
                "https://c.example/load-balancer/v2.0/lbaas",
                "https://c.example/load-balancer",
            ),
            (Service::Identity, "https://c.example/identity", "https://c.example/identity/v3"),
            (Service::Identity, "https://c.example:5000/v3/", "https://c.example:5000/v3"),
        ] {
            assert_eq!(service.base(url), wanted, "{service}: {url}");
        }
    }

    fn catalogue() -> Vec<Entry> {
        let endpoint = |interface: &str, region: &str, url: &str| json!({"id": "1", "interface": interface, "region": region, "region_id": region, "url": url});
        let entries = json!([
            {"type": "compute", "name": "nova", "endpoints": [
                endpoint("admin", "north", "http://admin.example/v2.1"),
                endpoint("public", "south", "https://south.example/v2.1"),
                endpoint("public", "north", "https://north.example/v2.1"),
                endpoint("internal", "north", "http://inside.example/v2.1"),
            ]},
            {"type": "network", "name": "neutron", "endpoints": [endpoint("public", "south", "https://net.example")]},
            {"type": "image", "name": "glance", "endpoints": []},
        ]);
        serde_json::from_value(entries).expect("a catalogue")
    }

    #[test]
    fn services_are_selected_by_region_interface_and_override() {
        let overrides = [(Service::LoadBalancer, "http://lb.example/v2".to_owned())].into();
        let found = Endpoints::find(&catalogue(), "north", Interface::Internal, &overrides);
        assert_eq!(found.base(Service::Compute).expect("there"), "http://inside.example/v2.1");
        assert_eq!(
            found.base(Service::LoadBalancer).expect("the key overrides the catalogue"),
            "http://lb.example"
        );
        let found = Endpoints::find(&catalogue(), "north", Interface::Public, &overrides);
        assert_eq!(found.base(Service::Compute).expect("there"), "https://north.example/v2.1");
        let error = found.base(Service::Network).expect_err("the service is in another region");
        assert_eq!(error.fault, Fault::Unsupported);
        assert!(error.message.contains("in region north for interface public, only in south:"), "{error}");
        let error = found.base(Service::Identity).expect_err("nowhere");
        assert!(error.message.contains("no identity service for interface public"), "{error}");
    }
}
