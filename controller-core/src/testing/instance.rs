//! Builds instances, for example `instance("sim://north/i-1").named("a").at("192.0.2.1")`

use cloud_api_proto::v1alpha1::{
    Instance, InstanceAddress, InstanceState,
    instance_address::{Type, Value},
};

/// Starts to build an instance. The instance is running, has the type `small`, the region `north` and the zone `north-1`, and has no name
/// and no addresses.
pub fn instance(provider_id: &str) -> InstanceBuilder {
    InstanceBuilder(Instance {
        provider_id: provider_id.to_owned(),
        state: InstanceState::Running.into(),
        instance_type: "small".to_owned(),
        region: "north".to_owned(),
        zone: "north-1".to_owned(),
        ..Instance::default()
    })
}

/// Builds an instance.
#[derive(Clone, Debug)]
#[must_use]
pub struct InstanceBuilder(Instance);

impl InstanceBuilder {
    /// Sets the name in the cloud.
    pub fn named(mut self, name: &str) -> Self {
        self.0.name = name.to_owned();
        self
    }

    /// Adds an internal address.
    pub fn at(self, ip: &str) -> Self {
        self.address(Type::InternalIp, ip)
    }

    /// Adds an external address.
    pub fn external(self, ip: &str) -> Self {
        self.address(Type::ExternalIp, ip)
    }

    /// Adds an address of this type. The address is an IP address or a name, depending on the type.
    pub fn address(mut self, type_: Type, address: &str) -> Self {
        let is_ip = matches!(type_, Type::InternalIp | Type::ExternalIp);
        let value = if is_ip { Value::Ip(address.to_owned()) } else { Value::Name(address.to_owned()) };
        let family = match (is_ip, address.contains(':')) {
            (false, _) => 0,
            (true, true) => 6,
            (true, false) => 4,
        };
        let address = InstanceAddress {
            r#type: type_.into(),
            value: Some(value),
            family,
            network: "default".to_owned(),
            primary: true,
        };
        self.0.addresses.push(address);
        self
    }

    /// Sets the instance type.
    pub fn of_type(mut self, instance_type: &str) -> Self {
        self.0.instance_type = instance_type.to_owned();
        self
    }

    /// Sets region and zone.
    pub fn zone(mut self, region: &str, zone: &str) -> Self {
        self.0.region = region.to_owned();
        self.0.zone = zone.to_owned();
        self
    }

    /// Adds a label that comes from the vendor.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.extra_labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the state.
    pub fn state(mut self, state: InstanceState) -> Self {
        self.0.state = state.into();
        self
    }

    /// Returns the instance.
    #[must_use]
    pub fn build(self) -> Instance {
        self.0
    }
}

impl From<InstanceBuilder> for Instance {
    fn from(builder: InstanceBuilder) -> Self {
        builder.0
    }
}
