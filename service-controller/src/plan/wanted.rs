//! What shall be in force for a Service: what it asks for, or the last of what it asked for that could be done, as far as the Service still
//! has the node ports (`node_ports.rs`).
//!
//! A mistyped annotation must not cost a running Service its load balancer's nodes: until it is repaired, the last good wish stays in
//! force, follows the nodes and is repaired at the cloud. People are told of the mistake all the same. The last good wish is known in
//! memory alone: after a restart nothing is done for a Service with a mistake but to tell it. What merely cannot change on the load
//! balancer that is there can be read off it: then the rest of the wish is in force, and follows the nodes (`as_it_is.rs`).

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use super::{
    Refusal,
    annotations::{node_selector, selector::Selector, settings::Defaults},
    cloud::Balancer,
    features::{Features, name},
    members::{Members, Verdict, verdict},
    memory::Memory,
    node_ports,
    service::{Family, FamilyPolicy, Role, Service},
    spec::{Checked, Shape},
    status::Shown,
};

/// What a Service's load balancer shall be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// What the adapter hears of it.
    pub(crate) shape: Shape,
    /// Which nodes stand behind it.
    pub(crate) selector: Option<Selector>,
    /// What the status shows of it.
    pub(crate) shown: Shown,
    /// The adapter calls it as it likes, and the cluster's template says otherwise.
    pub(crate) unnamed: bool,
    /// It has two families, and one would do.
    pub(crate) may_narrow: bool,
}

impl Wanted {
    fn of(
        service: &Service,
        defaults: &Defaults,
        features: &Features,
        family: Option<Family>,
    ) -> Result<Self, Vec<Refusal>> {
        let checked = Checked::new(service, defaults)?;
        let shape = checked.shape(features, family)?;
        let may_narrow = shape.families() > 1 && service.family_policy == FamilyPolicy::OneWillDo;
        Ok(Self { may_narrow, ..Self::with(shape, &checked, service, defaults, features) })
    }

    /// What can stand in for it where the adapter says that these fields of what is there cannot change. `None`: nobody can tell.
    pub(crate) fn as_it_is(
        service: &Service,
        defaults: &Defaults,
        features: &Features,
        memory: &Memory,
        (fixed, there): (&BTreeSet<String>, &[IpAddr]),
    ) -> Option<Self> {
        let checked = Checked::new(service, defaults).ok()?;
        let good = memory.good.as_ref().map(|good| &good.shape);
        let shape = checked.shape_as_it_is(features, memory.family(), (fixed, there), good)?;
        Some(Self::with(shape, &checked, service, defaults, features))
    }

    fn with(
        shape: Shape,
        checked: &Checked<'_>,
        service: &Service,
        defaults: &Defaults,
        features: &Features,
    ) -> Self {
        Self {
            shape,
            selector: node_selector(service, defaults),
            shown: Shown::from(&checked.wishes),
            unnamed: checked.is_unnamed(features),
            may_narrow: false,
        }
    }
}

/// What one look makes of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Judged {
    /// What shall be in force. `None`: nothing, or nothing that is known yet.
    pub(crate) wanted: Option<Arc<Wanted>>,
    /// What keeps that which the Service asks for now from being done.
    pub(crate) refusals: Vec<Refusal>,
    /// What is in force stands in for what is asked for.
    pub(crate) stands_in: bool,
    /// It has more members than a new one may have, since nodes came.
    pub(crate) grown: Option<Members>,
    /// What shall be in force depends on whether the load balancer exists, which the adapter has not listed yet.
    pub(crate) awaits_listing: bool,
}

impl Judged {
    /// Judges a Service that shall have a load balancer; any other asks for nothing. Cost: no calls.
    pub(crate) fn of(
        service: &Service,
        memory: &Memory,
        defaults: &Defaults,
        features: Option<&Features>,
        now: Duration,
    ) -> Self {
        if service.role() != Role::Wanted || features.is_some_and(|it| !it.has(name::LOAD_BALANCERS)) {
            return Self::default();
        }
        let Some(features) = features else {
            let refusals = Checked::new(service, defaults).err().unwrap_or_default();
            return Self { refusals, ..Self::default() };
        };
        match Wanted::of(service, defaults, features, memory.family()) {
            Err(refusals) => Self::refused((service, defaults), memory, refusals),
            // Not asked for again at each look: only something else, or time, can help.
            Ok(wanted) if memory.good.is_some() && memory.is_refused(&wanted.shape, now) => {
                Self::refused((service, defaults), memory, Vec::new())
            }
            Ok(wanted) => Self { wanted: Some(Arc::new(wanted)), ..Self::default() },
        }
    }

    /// The same with the bound on members. `nodes`: how many its selector matches. `seen`: as for [`verdict`]. What stands in is in
    /// force already.
    pub(crate) fn bounded(
        self,
        (service, defaults): (&Service, &Defaults),
        nodes: usize,
        (memory, seen): (&Memory, Option<&[Balancer]>),
    ) -> Self {
        let Some(wanted) = self.wanted.as_ref().filter(|_| !self.stands_in) else { return self };
        match verdict(service, wanted, (nodes, defaults.bounds().members), (memory, seen)) {
            Verdict::Fits => self,
            Verdict::Grown(members) => Self { grown: Some(members), ..self },
            Verdict::Refused(refusal) => Self::refused((service, defaults), memory, vec![refusal]),
            Verdict::Unlisted => Self { awaits_listing: true, ..Self::default() },
        }
    }

    fn refused(of: (&Service, &Defaults), memory: &Memory, refusals: Vec<Refusal>) -> Self {
        let wanted = memory.good.as_ref().map(|good| node_ports::still_held(good, of));
        Self { wanted, refusals, stands_in: true, ..Self::default() }
    }

    /// Which nodes shall stand behind it.
    pub(crate) fn selector(&self) -> Option<&Selector> {
        self.wanted.as_ref().and_then(|wanted| wanted.selector.as_ref())
    }
}
