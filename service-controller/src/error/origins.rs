//! Where the settings of a Service come from: an annotation, a field of the Service, or a default of the cluster. Errors of the adapter name
//! these places.

use crate::plan::{
    annotations::{
        keys::{self, Key, PREFIX},
        settings::{Defaults, Given, Origin, Settings},
    },
    service::Service,
};

/// The settings that may be named by a grant of the operator, and the kinds of these grants.
const GRANTED: [(Key, &str); 3] =
    [(keys::ADDRESS_POOL, "pool"), (keys::SUBNET, "subnet"), (keys::TLS_CERT_REFS, "certificate")];

/// The origins of a Service's settings. Default: they are not known, and the annotations are named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    settings: Settings,
    namespace: String,
    /// Whether `spec.loadBalancerIP` is set.
    has_address_field: bool,
}

impl Origins {
    pub(crate) fn of(service: &Service, defaults: &Defaults) -> Self {
        let (settings, _refusals) = Settings::of(service, defaults);
        let has_address_field = service.requested_address.is_some();
        Self { settings, namespace: service.id.namespace.clone(), has_address_field }
    }

    pub(super) fn place(&self, key: Key) -> String {
        place(self.settings.get(key), key)
    }

    /// `at`: the index of the port in the Service, if it is known.
    pub(super) fn place_of_port(&self, at: Option<usize>, key: Key) -> String {
        at.map_or_else(|| self.place(key), |at| place(self.settings.of_port(at, key), key))
    }

    pub(super) fn place_of_address(&self) -> String {
        const FIELD: &str = "spec.loadBalancerIP";
        match (self.settings.get(keys::ADDRESS), self.has_address_field) {
            (Some(given), false) => given.place.clone(),
            (None, true) => FIELD.to_owned(),
            (Some(_), true) | (None, false) => format!("{FIELD} ({})", self.place(keys::ADDRESS)),
        }
    }

    pub(super) fn place_of_parameter(&self, name: &str) -> String {
        let given = self.settings.of_vendors().find(|(_, key, _)| *key == name).map(|(_, _, given)| given);
        given.map_or_else(|| format!("annotation {PREFIX}x.<adapter>.{name}"), |given| given.place.clone())
    }

    /// A default applies to all Services. The adapter, which does not know the origin of a value, advises a grant for one namespace.
    pub(super) fn with_grants_for_all(&self, text: String) -> String {
        let of_default = |given: &&Given| given.origin == Origin::Default;
        let plain = GRANTED.into_iter().flat_map(|(key, kind)| {
            let given = self.settings.get(key).filter(of_default);
            let values = given.into_iter().flat_map(|given| given.value.split(','));
            values.map(move |value| format!("{kind}={}", value.trim())).collect::<Vec<_>>()
        });
        let vendor = self.settings.of_vendors().filter(|(_, _, given)| of_default(given));
        let vendor = vendor.map(|(_, key, _)| format!("parameter={key}"));
        plain.chain(vendor).fold(text, |text, grant| {
            text.replace(&format!("add {}:{grant} to", self.namespace), &format!("add *:{grant} to"))
        })
    }
}

fn place(given: Option<&Given>, key: Key) -> String {
    given.map_or_else(|| format!("annotation {key}"), |given| given.place.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::fields::in_users_words,
        plan::service::{Port, ServiceId, Transport},
    };

    fn shop(annotations: &[(&str, &str)]) -> Service {
        let id = ServiceId { namespace: "shop".to_owned(), ..ServiceId::default() };
        let port = |port| Port::plain(Transport::Tcp, port, 30_000);
        let annotations =
            annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        let annotations = annotations.collect();
        Service { id, ports: vec![port(80), port(443)], annotations, ..Service::default() }
    }

    #[test]
    fn address_is_named_where_it_is_set() {
        let by_annotation = shop(&[("address", "192.0.2.7")]);
        let by_field = Service { requested_address: Some("192.0.2.7".to_owned()), ..shop(&[]) };
        let by_both =
            Service { requested_address: by_field.requested_address.clone(), ..by_annotation.clone() };
        for (service, want) in [
            (by_annotation, "annotation lb.cloudadapter.dev/address"),
            (by_field, "spec.loadBalancerIP"),
            (by_both, "spec.loadBalancerIP (annotation lb.cloudadapter.dev/address)"),
        ] {
            let origins = Origins::of(&service, &Defaults::default());
            assert_eq!(
                in_users_words("spec.requested_addresses[0]: taken", &origins),
                format!("{want}: taken")
            );
        }
    }

    #[test]
    fn default_is_named_with_a_grant_for_all_namespaces() {
        let mut defaults = Defaults::default();
        for (name, value) in [
            ("address-pool", "gold"),
            ("subnet", "s-1, s-2"),
            ("idle-timeout", "5m"),
            ("x.sim.flavor", "big"),
            ("size", "large"),
        ] {
            defaults.set(name, value).unwrap();
        }
        let service = shop(&[("size", "small"), ("port.443.idle-timeout", "1m"), ("subnet", "s-3")]);
        let origins = Origins::of(&service, &defaults);
        let texts = [
            "spec.address_pool: pool gold needs a grant from the operator: add shop:pool=gold to adapter.grants (--grant)",
            "spec.parameters[flavor]: add shop:parameter=flavor to adapter.grants (--grant)",
            "spec.subnets[0]: add shop:subnet=s-3 to adapter.grants (--grant)",
            "spec.listeners[0].idle_timeout and spec.listeners[1].idle_timeout: too long",
            "spec.size: unknown",
        ];
        let texts = texts.map(|text| in_users_words(text, &origins)).join("\n");
        insta::assert_snapshot!(texts, @r"
        cluster default address-pool: pool gold needs a grant from the operator: add *:pool=gold to adapter.grants (--grant)
        cluster default x.sim.flavor: add *:parameter=flavor to adapter.grants (--grant)
        annotation lb.cloudadapter.dev/subnet: add shop:subnet=s-3 to adapter.grants (--grant)
        cluster default idle-timeout (spec.ports[0]) and annotation lb.cloudadapter.dev/port.443.idle-timeout (spec.ports[1]): too long
        annotation lb.cloudadapter.dev/size: unknown
        ");
    }
}
