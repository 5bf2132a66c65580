//! Derives the addresses in the Service's status from those that the adapter reports.

use super::{
    annotations::{Wishes, values::IpMode},
    service::Ingress,
};

/// User settings that replace the adapter's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    hostname: Option<String>,
    /// The IP mode that replaces the adapter's mode for every IP address.
    mode: Option<&'static str>,
}

impl From<&Wishes> for Shown {
    fn from(wishes: &Wishes) -> Self {
        let mode = match wishes.ip_mode.as_ref().map(|wish| wish.value) {
            None | Some(IpMode::Auto) => None,
            Some(IpMode::Vip) => Some("VIP"),
            Some(IpMode::Proxy) => Some("Proxy"),
        };
        Self { hostname: wishes.hostname.as_ref().map(|wish| wish.value.clone()), mode }
    }
}

impl Shown {
    pub(crate) fn of(&self, addresses: &[Ingress]) -> Vec<Ingress> {
        let Some(first) = addresses.first() else { return Vec::new() };
        if self.hostname.is_some() {
            let hostname = self.hostname.clone();
            return vec![Ingress { hostname, ports: first.ports.clone(), ..Ingress::default() }];
        }
        let mut shown = addresses.to_vec();
        if let Some(mode) = self.mode {
            // The API server accepts an IP mode only with an IP address.
            shown.iter_mut().filter(|it| it.ip.is_some()).for_each(|it| it.ip_mode = Some(mode.to_owned()));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        annotations::{keys::PREFIX, settings::Defaults, wishes},
        service::Service,
    };

    fn status(annotation: Option<(&str, &str)>) -> Vec<String> {
        let ip = Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() };
        let name = Ingress { hostname: Some("lb.example.com".to_owned()), ..Ingress::default() };
        let annotations = annotation.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_owned()));
        let service = Service { annotations: annotations.into_iter().collect(), ..Service::default() };
        let (wishes, _faults) = wishes(&service, &Defaults::default());
        let shown = Shown::from(&wishes);
        assert_eq!(shown.of(&[]), [], "no addresses");
        shown.of(&[ip, name]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hostname_replaces_addresses_in_status() {
        assert_eq!(status(None), ["192.0.2.1", "lb.example.com"]);
        assert_eq!(status(Some(("hostname", "shop.example.com"))), ["shop.example.com"]);
    }

    #[test]
    fn ip_mode_is_set_only_with_ip() {
        assert_eq!(status(Some(("ip-mode", "Proxy"))), ["192.0.2.1 (Proxy)", "lb.example.com"]);
        assert_eq!(status(Some(("ip-mode", "VIP"))), ["192.0.2.1", "lb.example.com"]);
        assert_eq!(status(Some(("ip-mode", "auto"))), ["192.0.2.1", "lb.example.com"]);
    }
}
