use cloud_api_proto::v1alpha1::{Listener, LoadBalancerAddress};

use super::*;
use crate::grants::Grant;

fn grants(all: &[&str]) -> Grants {
    all.iter().map(|text| text.parse().expect(text)).collect::<Vec<Grant>>().into()
}

fn declared() -> [Parameter; 2] {
    [("network-id", true), ("timeout", false)].map(|(key, needs_grant)| Parameter {
        key: key.to_owned(),
        needs_grant,
        ..Parameter::default()
    })
}

/// Rows: the field, the request, the grant that permits the request, and the vendor's name of the resource.
type Row = (&'static str, fn(&mut LoadBalancerSpec), &'static str, &'static str);

const NAMED: [Row; 4] = [
    (
        "spec.parameters[network-id]",
        |spec| drop(spec.parameters.insert("network-id".into(), "net-1".into())),
        "shop:parameter=network-id",
        "net-1",
    ),
    ("spec.address_pool", |spec| spec.address_pool = "dmz".into(), "shop:pool=dmz", "dmz"),
    ("spec.subnets[0]", |spec| spec.subnets.push("s-1".into()), "shop:subnet=s-1", "s-1"),
    (
        "spec.listeners[0].tls_refs[0]",
        |spec| spec.listeners.push(Listener { tls_refs: vec!["cert-1".into()], ..Listener::default() }),
        "shop:certificate=cert-1",
        "cert-1",
    ),
];

fn check(
    change: fn(&mut LoadBalancerSpec),
    there: Option<(&LoadBalancer, BTreeSet<String>)>,
    granted: &[&str],
) -> Result<(), AdapterError> {
    let mut spec = LoadBalancerSpec::default();
    change(&mut spec);
    Asked { spec: &spec, namespace: "shop", parameters: &declared(), there }.check(&grants(granted))
}

#[test]
fn foreign_resources_need_a_grant() {
    for (field, change, grant, _) in NAMED {
        let error = check(change, None, &[]).expect_err(field);
        assert_eq!((error.reason, error.violations[0].field.as_str()), (Reason::FieldInvalid, field));
        assert!(error.message.contains(&format!("add {grant} to adapter.grants (--grant)")), "{error}");
        check(change, None, &[grant]).expect(field);
        check(change, None, &[&grant.replacen("shop", "*", 1)]).expect(field);
        check(change, None, &[&grant.replacen("shop", "ops", 1)]).expect_err(field);
    }
    check(|spec| drop(spec.parameters.insert("timeout".into(), "5s".into())), None, &[]).expect("safe");
}

#[test]
fn reserved_addresses_are_refused() {
    let address: fn(&mut LoadBalancerSpec) = |spec| spec.requested_addresses.push("192.0.2.5".into());
    let field = "spec.requested_addresses[0]";
    check(address, None, &[]).expect("reserved for neither namespace");
    check(address, None, &["ops:addresses=192.0.2.0/28", "shop:addresses=192.0.2.5"])
        .expect("reserved for both namespaces");
    let error = check(address, None, &["ops:addresses=192.0.2.0/28"]).expect_err(field);
    assert_eq!(error.violations[0].field, field);
}

#[test]
fn resources_in_use_need_no_grant() {
    let value = Some(Value::Ip("192.0.2.5".into()));
    let there = LoadBalancer {
        addresses: vec![LoadBalancerAddress { value, ..Default::default() }],
        ..Default::default()
    };
    for (field, change, _, name) in NAMED {
        check(change, Some((&there, [name.to_owned()].into())), &[]).expect(field);
        let error = check(change, Some((&there, BTreeSet::new())), &[]).expect_err(field);
        assert_eq!((error.reason, error.metadata["fields"].as_str()), (Reason::ImmutableField, field));
    }
    let reserved = ["ops:addresses=192.0.2.0/28"];
    check(
        |spec| spec.requested_addresses.push("192.0.2.5".into()),
        Some((&there, BTreeSet::new())),
        &reserved,
    )
    .expect("the Service's own address");
    check(
        |spec| spec.requested_addresses.push("192.0.2.6".into()),
        Some((&there, BTreeSet::new())),
        &reserved,
    )
    .expect_err("another Service's address");
}

#[test]
fn ignored_fields_of_a_sharer_need_no_grant() {
    let asks: fn(&mut LoadBalancerSpec) = |spec| {
        spec.load_balancer_id = "lb-1".into();
        spec.subnets.push("s-1".into());
        spec.address_pool = "dmz".into();
    };
    let named = |id: &str| LoadBalancer { vendor_id: id.to_owned(), ..LoadBalancer::default() };
    check(asks, None, &[]).expect("before the Service shares the load balancer");
    check(asks, Some((&named("lb-1/u-1"), BTreeSet::new())), &[])
        .expect("while the Service shares the load balancer");
    check(asks, Some((&named("lb-1"), BTreeSet::new())), &[]).expect_err("the owner of the load balancer");
}
