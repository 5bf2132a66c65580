//! Requests of the attacker.

use super::*;

impl World {
    pub(super) fn random_wish(&mut self, service: &Service) -> Service {
        let cloud = &self.bench.cloud;
        let text = |one: &Value, key: &str| one[key].as_str().map(str::to_owned);
        let ids: Vec<String> = cloud.balancers.iter().filter_map(|one| text(one, "id")).collect();
        let names: Vec<String> = cloud.balancers.iter().filter_map(|one| text(one, "name")).collect();
        let vips = cloud.balancers.iter().filter_map(|one| text(one, "vip_address"));
        let all: Vec<String> = vips
            .chain(cloud.floating_ips.iter().filter_map(|one| text(one, "floating_ip_address")))
            .collect();
        let lent = self.id_of("lent");
        let chance = &mut self.chance;
        let ports: Vec<contract::Listener> =
            [25, 80, 443, 1194, 3306, 8080, 9000].into_iter().filter(|_| chance.one_in(3)).map(tcp).collect();
        let ports = if ports.is_empty() { vec![tcp(443)] } else { ports };
        let wish = if chance.one_in(2) { public(ports) } else { web(ports) };
        let mut wish = DesiredLoadBalancer { spec: wish.spec, ..service.wish.clone() };
        let spec = &mut wish.spec;
        let mut service = Service { adoption: Adoption::Never, known: None, ..service.clone() };
        match chance.below(6) {
            0 => service.adoption = Adoption::IfUnowned,
            1 | 2 => (service.adoption, service.known) = (Adoption::ById, chance.of(&ids)),
            3 | 4 if chance.one_in(2) => spec.load_balancer_id = lent,
            3 | 4 => spec.load_balancer_id = chance.of(&ids).unwrap_or_default(),
            _ => (),
        }
        if chance.one_in(2) {
            spec.requested_addresses = chance.of(&all).into_iter().collect();
        }
        if chance.one_in(3) {
            let own =
                ["kube_service_prod_shop_web", "kube_service_prod_shop_old", "front"].map(str::to_owned);
            spec.name = chance.of(&[own.as_slice(), &names].concat()).unwrap_or_default();
        }
        if chance.one_in(4) {
            let tags = [("cloudadapter.dev/adopt", EVIL), ("kube_service_prod_shop_web", ""), ("team", "x")];
            spec.tags.extend(chance.of(&tags).map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        if chance.one_in(3) {
            spec.address_retention = AddressRetention::Keep.into();
        }
        if chance.one_in(4) {
            spec.shared_with = vec!["shop".to_owned()];
        }
        ask_for_what_is_of_others(chance, spec);
        service.recreate = chance
            .of(&[Recreate::Never, Recreate::IfError, Recreate::IfImmutableChanged])
            .unwrap_or_default();
        Service { wish: hashed(wish), ..service }
    }
}

fn ask_for_what_is_of_others(chance: &mut Chance, spec: &mut LoadBalancerSpec) {
    if chance.one_in(4) {
        let closed = [
            ("member-subnet-id", "members-of-others"),
            ("floating-subnet-id", "floating-of-others"),
            ("network-id", "subnet-of-others"),
        ];
        let one = chance.of(&closed).map(|(key, value)| (key.to_owned(), value.to_owned()));
        spec.parameters.extend(one);
    }
    if chance.one_in(3) {
        spec.address_pool = chance.of(&["dmz", "pool-of-others"]).unwrap_or_default().to_owned();
    }
    if chance.one_in(6) {
        spec.subnets = vec!["subnet-of-others".to_owned()];
    }
    if chance.one_in(6) {
        spec.listeners[0].tls_refs = vec!["certificate-of-others".to_owned()];
    }
}
