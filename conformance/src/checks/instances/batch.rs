//! Verifies a batch: its order, the fields of an instance, and references to other clouds.

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        Existence, Instance, InstanceAddress, InstanceRef, InstanceState,
        instance_address::{Type, Value},
    },
};

use super::ask::{ask, by_id, by_name, existing, one};
use crate::checks::prelude::*;

/// A valid provider ID of a fictitious provider.
const FOREIGN: &str = "conformance-unknown://nowhere/i-1";

/// instance_service.proto, `BatchGetInstances`: there is one result per reference, in the order of the request. An invalid reference does
/// not affect the other results.
pub(super) async fn order(cx: &Context) -> Verdict {
    let [a, b, c] = &cx.these_machines().await?;
    let refs = vec![
        by_id(&c.provider_id),
        InstanceRef::default(),
        by_id(&a.provider_id),
        by_id(FOREIGN),
        by_name("conformance-unknown"),
        by_id(""),
        by_id(&b.provider_id),
        by_id(&a.provider_id),
    ];
    for context in [cx.cluster().live(), cx.cluster().context()] {
        let results = ask(cx, context, refs.clone()).await?.results;
        let came: Vec<Option<&str>> =
            results.iter().map(|one| one.instance.as_ref().map(|found| found.provider_id.as_str())).collect();
        let id = |machine: &Instance| Some(machine.provider_id.clone());
        let wanted = [id(c), None, id(a), None, None, None, id(b), id(a)];
        let wanted: Vec<Option<&str>> = wanted.iter().map(Option::as_deref).collect();
        expect::equal("results come in the order of the references", &came, &wanted)?;
        let nothing = expect::some(results.get(1), "the answer has a result for an empty reference")?;
        let wants = "an empty reference fails alone: UNKNOWN";
        expect::equal(wants, &nothing.existence(), &Existence::Unknown)?;
        let reason = nothing.error.as_ref().map(cloud_api_proto::v1alpha1::ItemError::reason);
        let wants = "an empty reference fails with FIELD_INVALID";
        expect::equal(wants, &reason, &Some(Reason::FieldInvalid))?;
        let empty = expect::some(results.get(5), "the answer has a result for an empty provider ID")?;
        let gone = empty.existence() == Existence::Gone;
        expect::shown(!gone, "an invalid reference is not GONE", &empty)?;
    }
    Ok(())
}

/// instance_service.proto, `Instance`: the answer has all fields from which a Node is made. A look-up by name and a look-up by ID return
/// the same values.
pub(super) async fn whole(cx: &Context) -> Verdict {
    let [machine] = &cx.these_machines().await?;
    let answer = ask(cx, cx.cluster().live(), vec![by_id(&machine.provider_id)]).await?;
    expect::some(answer.cost, "an answer has a Cost")?;
    let scope = answer.scope.map(|scope| scope.fingerprint);
    let known = cx.info().scope.as_ref().map(|scope| scope.fingerprint.clone());
    expect::equal("the Scope of an answer is that of GetInfo", &scope, &known)?;
    let found = existing(expect::some(answer.results.into_iter().next(), "the answer has a result")?)?;
    let claim = |holds, wants: &str| expect::shown(holds, wants, &found);
    claim(found.provider_id == machine.provider_id, "`provider_id` is the one in the request")?;
    claim(found.provider_id.contains("://"), "`provider_id` is <provider>://...")?;
    claim(found.state() == InstanceState::Running, "`state` of a running instance is RUNNING")?;
    for (field, value) in [
        ("name", &found.name),
        ("instance_type", &found.instance_type),
        ("region", &found.region),
        ("zone", &found.zone),
        ("fingerprint", &found.fingerprint),
    ] {
        claim(!value.is_empty(), &format!("`{field}` is set"))?;
    }
    claim(found.created_at.is_some(), "`created_at` is set")?;
    addresses(&found.addresses)?;
    let named = existing(one(cx, cx.cluster().live(), by_name(&found.name)).await?)?;
    expect::equal("the instance of a Node is found by its `name`", &named.provider_id, &found.provider_id)?;
    expect::equal("the fingerprint is the same by name and by ID", &named.fingerprint, &found.fingerprint)
}

fn addresses(addresses: &[InstanceAddress]) -> Verdict {
    let all = || format!("{addresses:?}");
    let mut first = BTreeSet::new();
    for address in addresses {
        let claim = |holds, wants: &str| expect::shown(holds, wants, &address);
        claim(address.r#type() != Type::Unspecified, "an address has a type of the contract")?;
        match &address.value {
            Some(Value::Ip(text)) => {
                let ip: Option<IpAddr> = text.parse().ok();
                let canonical = ip.is_some_and(|ip| ip.to_string() == *text);
                claim(canonical, "`ip` is an IPv4 or IPv6 address in its canonical form")?;
                let family = if ip.is_some_and(|ip| ip.is_ipv4()) { 4 } else { 6 };
                claim(address.family == family, "`family` of an IP address is its IP version, 4 or 6")?;
                let fresh = !address.primary || first.insert((address.r#type, family));
                claim(fresh, "of each type and family, one address is primary")?;
            }
            Some(Value::Name(name)) => {
                claim(!name.is_empty() && address.family == 0, "an address that is a name has `family` 0")?;
            }
            None => claim(false, "an address has a value")?,
        }
    }
    let reachable = |one: &InstanceAddress| {
        matches!(one.r#type(), Type::InternalIp | Type::ExternalIp) && matches!(one.value, Some(Value::Ip(_)))
    };
    expect::that(addresses.iter().any(reachable), "an instance has an internal or external IP address", all)
}

/// instance_service.proto, `EXISTENCE_FOREIGN`: the adapter does not decide whether an instance of another provider or region exists, and
/// must not report it as GONE.
pub(super) async fn foreign(cx: &Context) -> Verdict {
    let sample = cx.params().samples.foreign_provider_id.clone();
    for id in sample.as_deref().into_iter().chain([FOREIGN]) {
        for context in [cx.cluster().live(), cx.cluster().context()] {
            let result = one(cx, context, by_id(id)).await?;
            let wants = format!("{id} is FOREIGN");
            expect::equal(&wants, &result.existence(), &Existence::Foreign)?;
        }
    }
    Ok(())
}
