//! The desired load balancer of a Service, with the nodes behind it and the settings for its status.

use controller_core::selector::Selector;

use super::{
    Refusal,
    annotations::{node_selector, settings::Defaults},
    as_it_is::Existing,
    features::Features,
    service::{Family, FamilyPolicy, Service},
    spec::{Checked, Shape},
    status::Shown,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// The part of the settings that the adapter receives.
    pub(crate) shape: Shape,
    /// The selector of the nodes behind the load balancer. `None`: all nodes.
    pub(crate) selector: Option<Selector>,
    pub(crate) shown: Shown,
    /// Whether the cluster has a name template, but the adapter does not support custom names.
    pub(crate) unnamed: bool,
    /// Whether the load balancer has two families although one family is sufficient.
    pub(crate) may_narrow: bool,
}

impl Wanted {
    pub(super) fn of(
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

    /// Replacement settings for an existing load balancer on which these fields cannot change. `None`: the current values of the fields are
    /// unknown.
    pub(crate) fn as_it_is(
        service: &Service,
        defaults: &Defaults,
        features: &Features,
        existing: &Existing<'_>,
    ) -> Option<Self> {
        let checked = Checked::new(service, defaults).ok()?;
        let shape = checked.shape_as_it_is(features, existing)?;
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
