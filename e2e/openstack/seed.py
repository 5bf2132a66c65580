"""Fills the local cloud: `seed.py identity ...` before the other services start, `seed.py cloud HOME` after.

Existing objects are kept.
"""

import sys
from pathlib import Path

import openstack
from openstack.connection import Connection
from openstack.exceptions import raise_from_response

DOMAIN = "default"
REGION = "RegionOne"
TENANTS = ("demo", "demo2", "secured", "replicas")
"""Projects with a member of the same name. The last two are for lanes of the conformance suite."""


def identity(password: str, keystone: str, nova: str, placement: str, glance: str, neutron: str, octavia: str) -> None:
    """Creates accounts, and the catalogue of services. The arguments after the password are ports."""
    c = openstack.connect(cloud="admin").identity

    def project(name):
        return c.find_project(name, domain_id=DOMAIN) or c.create_project(name=name, domain_id=DOMAIN)

    def user(name, home, roles):
        one = c.find_user(name, domain_id=DOMAIN) or c.create_user(
            name=name, password=password, domain_id=DOMAIN, default_project_id=home.id)
        for name in roles:
            role = c.find_role(name) or c.create_role(name=name)
            c.assign_project_role_to_user(home, one, role)

    service = project("service")
    for name in ("nova", "placement", "glance", "neutron", "octavia"):
        user(name, service, ["admin", "service"])
    for name in TENANTS:
        user(name, project(name), ["member", "load-balancer_member"])
    user("viewer", project("demo"), ["reader", "load-balancer_observer"])
    for name, kind, port, path in (
        ("keystone", "identity", keystone, "/v3"),
        ("nova", "compute", nova, "/v2.1"),
        ("placement", "placement", placement, ""),
        ("glance", "image", glance, ""),
        ("neutron", "network", neutron, ""),
        ("octavia", "load-balancer", octavia, ""),
    ):
        s = next(iter(c.services(type=kind)), None) or c.create_service(name=name, type=kind)
        there = {endpoint.interface for endpoint in c.endpoints(service_id=s.id)}
        for interface in {"public", "internal", "admin"} - there:
            c.create_endpoint(service_id=s.id, interface=interface, region_id=REGION, url=f"http://127.0.0.1:{port}{path}")


def cloud(home: str) -> None:
    """Creates images, flavors, zones, networks and quotas, and the objects for amphorae, whose IDs go into the configuration of Octavia."""
    a = openstack.connect(cloud="admin")
    service, *tenants = (a.identity.find_project(name) for name in ("service", *TENANTS))
    images(a)
    amphora = flavors(a)
    for zone, host in (("zone-a", "fake-a"), ("zone-b", "fake-b")):
        if not a.compute.find_aggregate(zone):
            group = a.compute.create_aggregate(name=zone, availability_zone=zone)
            a.compute.add_host_to_aggregate(group, host)
    public = network(a, "public", "203.0.113.0/24", dhcp=False, is_router_external=True, is_shared=False,
                     provider_network_type="flat", provider_physical_network="public")
    for project in tenants:
        networks(a, project, public)
    management = network(a, "lb-mgmt", "192.0.2.0/24", project_id=service.id)
    # Nova looks the group up as the octavia user, so the service project must own it.
    group = a.network.find_security_group("lb-mgmt") or a.network.create_security_group(
        name="lb-mgmt", project_id=service.id)
    for project in (service, *tenants):
        a.set_compute_quotas(project.id, instances=20_000, cores=80_000, ram=80_000_000)
        a.network.update_quota(project.id, ports=20_000, security_groups=1000, security_group_rules=10000,
                               routers=50, floating_ips=200, networks=500, subnets=500)
        # openstacksdk does not know this quota yet.
        raise_from_response(a.network.put(f"/quotas/{project.id}", json={"quota": {"router_route": 2000}}))
    Path(home, "amphora.env").write_text(
        f"AMP_FLAVOR={amphora.id}\nAMP_NET={management.network_id}\nAMP_SG={group.id}\n")


def images(a: Connection) -> None:
    for name, tags in (("tiny", []), ("amphora", ["amphora"])):
        if not a.image.find_image(name):
            a.image.create_image(name=name, container_format="bare", disk_format="raw", data=b"\0" * 1024,
                                 visibility="public", tags=tags, validate_checksum=False)


def flavors(a: Connection):
    """Creates the flavors. Returns the one of amphorae."""
    for name, cpus, ram in (("m1.small", 1, 1024), ("m1.large", 4, 8192)):
        if not a.compute.find_flavor(name):
            a.compute.create_flavor(name=name, vcpus=cpus, ram=ram, disk=1)
    return a.compute.find_flavor("amphora") or a.compute.create_flavor(
        name="amphora", vcpus=1, ram=64, disk=0, is_public=False)


def networks(a: Connection, project, public) -> None:
    """Creates a dual-stack network for a project, behind a router with a gateway."""
    four = network(a, f"{project.name}-net", "10.20.0.0/16", project_id=project.id)
    six = a.network.find_subnet(f"{project.name}-net-v6") or a.network.create_subnet(
        name=f"{project.name}-net-v6", network_id=four.network_id, ip_version=6, cidr="fd20::/64", gateway_ip="fd20::1",
        ipv6_address_mode="slaac", ipv6_ra_mode="slaac", project_id=project.id)
    # An extra route is accepted only if the router has an interface on the next hop's subnet, so both families get one.
    router = a.network.find_router(f"{project.name}-router") or a.network.create_router(
        name=f"{project.name}-router", project_id=project.id, external_gateway_info={"network_id": public.network_id})
    attached = {ip["subnet_id"] for port in a.network.ports(device_id=router.id) for ip in port.fixed_ips}
    for subnet in (four, six):
        if subnet.id not in attached:
            a.network.add_interface_to_router(router, subnet_id=subnet.id)


def network(a: Connection, name: str, cidr: str, dhcp: bool = True, **settings):
    """Creates a network with an IPv4 subnet. Returns the subnet."""
    owner = {key: settings[key] for key in settings if key == "project_id"}
    net = a.network.find_network(name) or a.network.create_network(name=name, **settings)
    return a.network.find_subnet(f"{name}-v4") or a.network.create_subnet(
        name=f"{name}-v4", network_id=net.id, ip_version=4, cidr=cidr, enable_dhcp=dhcp, **owner)


if __name__ == "__main__":
    {"identity": identity, "cloud": cloud}[sys.argv[1]](*sys.argv[2:])
