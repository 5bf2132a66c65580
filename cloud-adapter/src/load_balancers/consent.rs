//! What a Service asks for that reaches beyond it, and that the operator has not opened to its namespace. Pure.
//!
//! A grant is needed to get something, and not to keep it: what the Service's load balancer has already it may ask for, so that a
//! reservation that comes later, or the move from another controller, changes nothing.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api_proto::{
    AdapterError, Reason,
    error::Violation,
    v1alpha1::{LoadBalancer, LoadBalancerSpec, Parameter, load_balancer_address::Value},
};

use crate::grants::Grants;

/// What a request asks for, and what is there.
pub(super) struct Asked<'a> {
    pub(super) spec: &'a LoadBalancerSpec,
    pub(super) namespace: &'a str,
    /// As the driver declares them.
    pub(super) parameters: &'a [Parameter],
    /// The Service's own load balancer, with the vendor's names of what it uses. `None`: it has none.
    pub(super) there: Option<(&'a LoadBalancer, BTreeSet<String>)>,
}

/// Whether a wish asks for anything of the kind: most do not, and what is there need not be looked at.
pub(super) fn may_need_any(spec: &LoadBalancerSpec) -> bool {
    !(spec.parameters.is_empty()
        && spec.requested_addresses.is_empty()
        && spec.address_pool.is_empty()
        && spec.subnets.is_empty()
        && spec.listeners.iter().all(|one| one.tls_refs.is_empty()))
}

impl Asked<'_> {
    /// Refuses what the namespace may not have.
    ///
    /// # Errors
    /// `FIELD_INVALID` with all such fields. Where there is a load balancer `IMMUTABLE_FIELD`: the caller may ask for it as it is there, and
    /// have all else done.
    pub(super) fn check(&self, grants: &Grants) -> Result<(), AdapterError> {
        let lacking: Vec<Violation> =
            [self.parameters(grants), self.addresses(grants), self.names(grants)].concat();
        if lacking.is_empty() {
            return Ok(());
        }
        if self.there.is_none() {
            return Err(AdapterError::fields(lacking));
        }
        let texts: Vec<String> =
            lacking.iter().map(|one| format!("{}: {}", one.field, one.description)).collect();
        let fields: Vec<&str> = lacking.iter().map(|one| one.field.as_str()).collect();
        Err(AdapterError::new(Reason::ImmutableField, texts.join("; ")).with("fields", fields.join(",")))
    }

    fn has(&self, name: &str) -> bool {
        self.there.as_ref().is_some_and(|(_, uses)| uses.contains(name))
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let addresses = self.there.iter().flat_map(|(there, _)| &there.addresses);
        // One that leads nowhere for a moment is not shown as the load balancer's.
        self.has(&address.to_string())
            || addresses.filter_map(|one| one.value.as_ref()).any(|value| match value {
                Value::Ip(there) => there.parse() == Ok(address),
                Value::Hostname(_) => false,
            })
    }

    fn lacks(&self, field: String, what: &str, (kind, value): (&str, &str)) -> Violation {
        let namespace = self.namespace;
        let description = format!(
            "{what} needs the operator's grant: start the adapter with --grant {namespace}:{kind}={value}"
        );
        Violation { field, description }
    }

    fn parameters(&self, grants: &Grants) -> Vec<Violation> {
        let needs_grant =
            |key: &str| self.parameters.iter().any(|known| known.key == key && known.needs_grant);
        let asked = self.spec.parameters.iter().filter(|(key, value)| needs_grant(key) && !self.has(value));
        let refused = asked.filter(|(key, _)| !grants.may_set(self.namespace, key));
        let lacks = |(key, _): (&String, &String)| {
            self.lacks(format!("spec.parameters[{key}]"), "it", ("parameter", key))
        };
        refused.map(lacks).collect()
    }

    fn addresses(&self, grants: &Grants) -> Vec<Violation> {
        let asked = self.spec.requested_addresses.iter().enumerate();
        let asked = asked.filter_map(|(at, text)| Some((at, text.parse::<IpAddr>().ok()?)));
        let refused = asked.filter(|(_, address)| !self.has_address(*address)).filter_map(|(at, address)| {
            let range = grants.reserved_for_others(self.namespace, address)?;
            let description = format!(
                "{address} is in {range}, which is reserved for other namespaces than {}",
                self.namespace
            );
            Some(Violation { field: format!("spec.requested_addresses[{at}]"), description })
        });
        refused.collect()
    }

    fn names(&self, grants: &Grants) -> Vec<Violation> {
        let Self { spec, namespace, .. } = self;
        let mut lacking = Vec::new();
        // Where a load balancer is shared its place is its owner's, and what others say of it counts nothing. An owner may name its own.
        let id = spec.load_balancer_id.as_str();
        let owns = self.there.as_ref().is_some_and(|(there, _)| there.vendor_id == id);
        let shares = !id.is_empty() && !owns;
        let pool = Some(spec.address_pool.as_str()).filter(|_| !shares).unwrap_or_default();
        if !pool.is_empty() && !self.has(pool) && !grants.may_use_pool(namespace, pool) {
            lacking.push(self.lacks("spec.address_pool".to_owned(), &format!("pool {pool}"), ("pool", pool)));
        }
        for (at, subnet) in spec.subnets.iter().enumerate().filter(|_| !shares) {
            if !self.has(subnet) && !grants.may_use_subnet(namespace, subnet) {
                let field = format!("spec.subnets[{at}]");
                lacking.push(self.lacks(field, &format!("subnet {subnet}"), ("subnet", subnet)));
            }
        }
        for (at, listener) in spec.listeners.iter().enumerate() {
            for (nth, reference) in listener.tls_refs.iter().enumerate() {
                if !self.has(reference) && !grants.may_use_certificate(namespace, reference) {
                    let field = format!("spec.listeners[{at}].tls_refs[{nth}]");
                    let what = format!("certificate {reference}");
                    lacking.push(self.lacks(field, &what, ("certificate", reference)));
                }
            }
        }
        lacking
    }
}
