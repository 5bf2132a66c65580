//! Refuses a Service's requests for objects beyond its own objects, unless the operator has granted these objects to the namespace. This
//! module is pure.
//!
//! A Service needs a grant for new objects, but not for objects that its load balancer already uses. Therefore a later reservation, or the
//! migration from another controller, does not affect existing load balancers.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api_proto::{
    AdapterError, Reason,
    error::Violation,
    v1alpha1::{LoadBalancer, LoadBalancerSpec, Parameter, load_balancer_address::Value},
};

use crate::grants::Grants;

pub(super) struct Asked<'a> {
    pub(super) spec: &'a LoadBalancerSpec,
    pub(super) namespace: &'a str,
    pub(super) parameters: &'a [Parameter],
    /// The Service's own load balancer, and the vendor's names of the resources that the load balancer uses. `None`: the Service has no
    /// load balancer.
    pub(super) there: Option<(&'a LoadBalancer, BTreeSet<String>)>,
}

/// Returns whether a specification requests anything that may need a grant. Most specifications do not, and the comparison with the
/// existing state is then skipped.
pub(super) fn may_need_any(spec: &LoadBalancerSpec) -> bool {
    !(spec.parameters.is_empty()
        && spec.requested_addresses.is_empty()
        && spec.address_pool.is_empty()
        && spec.subnets.is_empty()
        && spec.listeners.iter().all(|one| one.tls_refs.is_empty()))
}

impl Asked<'_> {
    /// Refuses fields for which the namespace has no grant.
    ///
    /// Returns `FIELD_INVALID` with all fields that lack a grant. If there is a load balancer, returns `IMMUTABLE_FIELD` instead. The
    /// caller may then repeat the request with the existing values, so that all other changes are made.
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
        // `uses` also lists addresses that are temporarily detached, which the summary of the load balancer lacks.
        self.has(&address.to_string())
            || addresses.filter_map(|one| one.value.as_ref()).any(|value| match value {
                Value::Ip(there) => there.parse() == Ok(address),
                Value::Hostname(_) => false,
            })
    }

    fn lacks(&self, field: String, what: &str, kind: &str, value: &str) -> Violation {
        let namespace = self.namespace;
        let description = format!(
            "{what} needs a grant from the operator: add {namespace}:{kind}={value} to adapter.grants (--grant)"
        );
        Violation { field, description }
    }

    fn parameters(&self, grants: &Grants) -> Vec<Violation> {
        let needs_grant =
            |key: &str| self.parameters.iter().any(|known| known.key == key && known.needs_grant);
        let asked = self.spec.parameters.iter().filter(|(key, value)| needs_grant(key) && !self.has(value));
        let refused = asked.filter(|(key, _)| !grants.may_set(self.namespace, key));
        let lacks = |(key, _): (&String, &String)| {
            self.lacks(format!("spec.parameters[{key}]"), "this parameter", "parameter", key)
        };
        refused.map(lacks).collect()
    }

    fn addresses(&self, grants: &Grants) -> Vec<Violation> {
        let asked = self.spec.requested_addresses.iter().enumerate();
        let asked = asked.filter_map(|(at, text)| Some((at, text.parse::<IpAddr>().ok()?)));
        let refused = asked.filter(|(_, address)| !self.has_address(*address)).filter_map(|(at, address)| {
            let range = grants.reserved_for_others(self.namespace, address)?;
            let description = format!(
                "{address} is in {range}, which is reserved for namespaces other than {}",
                self.namespace
            );
            Some(Violation { field: format!("spec.requested_addresses[{at}]"), description })
        });
        refused.collect()
    }

    fn names(&self, grants: &Grants) -> Vec<Violation> {
        let Self { spec, namespace, .. } = self;
        let mut lacking = Vec::new();
        // The owner of a shared load balancer chooses its pool and subnets, so requests of other users for these have no effect. The owner
        // may request the current pool and subnets.
        let id = spec.load_balancer_id.as_str();
        let owns = self.there.as_ref().is_some_and(|(there, _)| there.vendor_id == id);
        let shares = !id.is_empty() && !owns;
        let pool = Some(spec.address_pool.as_str()).filter(|_| !shares).unwrap_or_default();
        if !pool.is_empty() && !self.has(pool) && !grants.may_use_pool(namespace, pool) {
            lacking.push(self.lacks("spec.address_pool".to_owned(), &format!("pool {pool}"), "pool", pool));
        }
        for (at, subnet) in spec.subnets.iter().enumerate().filter(|_| !shares) {
            if !self.has(subnet) && !grants.may_use_subnet(namespace, subnet) {
                let field = format!("spec.subnets[{at}]");
                lacking.push(self.lacks(field, &format!("subnet {subnet}"), "subnet", subnet));
            }
        }
        for (at, listener) in spec.listeners.iter().enumerate() {
            for (nth, reference) in listener.tls_refs.iter().enumerate() {
                if !self.has(reference) && !grants.may_use_certificate(namespace, reference) {
                    let field = format!("spec.listeners[{at}].tls_refs[{nth}]");
                    let what = format!("certificate {reference}");
                    lacking.push(self.lacks(field, &what, "certificate", reference));
                }
            }
        }
        lacking
    }
}
