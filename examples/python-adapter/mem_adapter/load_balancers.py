"""LoadBalancerService. The cloud answers at once, so a convergence is done under its lock, and nobody waits or joins."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace

import grpc
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api
from cloudadapter.v1alpha1 import load_balancer_service_pb2_grpc as rpc

from . import fields, plan
from .backends import BackendSets
from .cloud import SCOPE, Balancer, Cloud, Meter
from .mirror import View, watch
from .ownership import HASH, Fences, Key, fence_of, key_of, owner_of

PROXIES = (api.Listener.PROXY_PROTOCOL_V1, api.Listener.PROXY_PROTOCOL_V2)


class LoadBalancers(rpc.LoadBalancerServiceServicer):
    """Serves them."""

    def __init__(self, cloud: Cloud, fences: Fences, process: str, draining: threading.Event) -> None:
        self.cloud, self.fences, self.process, self.draining = cloud, fences, process, draining
        self.sets = BackendSets()

    def WatchLoadBalancers(
        self, request: api.WatchLoadBalancersRequest, context: grpc.ServicerContext
    ) -> Iterator[api.WatchLoadBalancersResponse]:
        """What the caller's cluster owns."""
        cluster = request.context.cluster_id
        view: View[Balancer, api.LoadBalancer, api.WatchLoadBalancersResponse] = View(
            id=f"{self.process}/load-balancers/{cluster}",
            scope=SCOPE,
            see=lambda balancer: item(balancer, cluster),
            key=lambda shown: shown.vendor_id,
            items=api.LoadBalancerItems,
            gone=lambda shown: api.LoadBalancerGone(vendor_id=shown.vendor_id, key=shown.key),
            response=api.WatchLoadBalancersResponse,
        )
        return watch(self.cloud.balancers, view, request, context, self.draining)

    def PutBackendSet(
        self, request: api.PutBackendSetRequest, context: grpc.ServicerContext
    ) -> api.PutBackendSetResponse:
        """Keeps it in memory."""
        cost = Meter(self.cloud, request.context.request_id).cost()
        return api.PutBackendSetResponse(size=self.sets.put(request), cost=cost)

    def EnsureLoadBalancer(
        self, request: api.EnsureLoadBalancerRequest, context: grpc.ServicerContext
    ) -> api.EnsureLoadBalancerResponse:
        """Converges; a request like the one before writes nothing."""
        fields.check(request)
        cluster, spec = request.context.cluster_id, request.spec
        members = self.sets.get(cluster, spec.backend_set_id, "spec.backend_set_id")
        meter = Meter(self.cloud, request.context.request_id)
        with self.cloud.changed:
            self.admit(request)
            steps = list(plan.ensure(request, members, self.cloud.balancers.all()))
            if request.dry_run and steps:
                state, planned = api.LOAD_BALANCER_STATE_PENDING, [step.planned() for step in steps]
                meter.call("loadbalancer", "ListBalancers")
                answer = api.EnsureLoadBalancerResponse(state=state, steps=len(steps), plan=planned)
            else:
                self.execute(steps, meter)
                found = self.find((cluster, request.key.owner_uid))
                answer = active(found, len(steps))
        answer.cost.CopyFrom(meter.cost())
        return answer

    def DeleteLoadBalancer(
        self, request: api.DeleteLoadBalancerRequest, context: grpc.ServicerContext
    ) -> api.DeleteLoadBalancerResponse:
        """Converges to nothing."""
        fields.check_delete(request)
        meter = Meter(self.cloud, request.context.request_id)
        with self.cloud.changed:
            self.admit(request)
            meter.call("loadbalancer", "ListBalancers")
            steps = list(plan.delete(request, self.cloud.balancers.all()))
            if request.dry_run:
                planned = [step.planned() for step in steps]
            else:
                self.execute(steps, meter)
                planned = []
        state = api.LOAD_BALANCER_STATE_DELETING if planned else api.LOAD_BALANCER_STATE_ABSENT
        return api.DeleteLoadBalancerResponse(state=state, plan=planned, cost=meter.cost())

    def admit(self, request: api.EnsureLoadBalancerRequest | api.DeleteLoadBalancerRequest) -> None:
        """Refuses an older writer. A dry run needs no fence."""
        if not request.dry_run:
            key = (request.key.cluster_id, request.key.owner_uid)
            found = self.find(key)
            self.fences.admit(key[0], request.fence, key[1], found.tags if found else {})

    def find(self, key: Key) -> Balancer | None:
        """The one that is tagged with a key."""
        return next((found for found in self.cloud.balancers.all() if key_of(found.tags) == key), None)

    def execute(self, steps: Iterable[plan.Step], meter: Meter) -> None:
        """Carries a plan out."""
        made = ""
        for step in steps:
            meter.call("loadbalancer", step.operation)
            target = step.target or made
            if step.operation == plan.CREATE:
                made = self.cloud.create_balancer(**step.changes)
            elif step.operation == plan.DELETE:
                self.cloud.balancers.set(target, None)
            else:
                self.cloud.balancers.set(target, replace(self.cloud.balancers.items[target], **step.changes))


def active(balancer: Balancer | None, steps: int) -> api.EnsureLoadBalancerResponse:
    """The answer once all is done."""
    if balancer is None:
        raise AssertionError("a plan that was carried out leaves its load balancer")
    return api.EnsureLoadBalancerResponse(
        state=api.LOAD_BALANCER_STATE_ACTIVE,
        step=steps,
        steps=steps,
        addresses=addresses(balancer),
        applied_hash=balancer.tags[HASH],
        vendor_ids=vendor_ids(balancer),
    )


def item(balancer: Balancer, cluster: str) -> api.LoadBalancer | None:
    """A load balancer as its own cluster sees it; None for others."""
    key = key_of(balancer.tags)
    if key is None or key[0] != cluster:
        return None
    completed = balancer.tags.get(HASH, "")
    return api.LoadBalancer(
        vendor_id=balancer.id,
        key=api.LoadBalancerKey(cluster_id=key[0], owner_uid=key[1]),
        owner=owner_of(balancer.tags),
        state=api.LOAD_BALANCER_STATE_ACTIVE if completed else api.LOAD_BALANCER_STATE_PENDING,
        addresses=addresses(balancer),
        applied_hash=completed,
        vendor_ids=vendor_ids(balancer),
        listeners=balancer.listeners,
        backends=len(balancer.members),
        name=balancer.name,
        created_at=balancer.created,
        fence=fence_of(balancer.tags),
    )


def vendor_ids(balancer: Balancer) -> api.VendorIds:
    """What its parts are called."""
    parts = {f"listener/{name}": f"{balancer.id}/{name}" for name in balancer.listeners}
    return api.VendorIds(ids={"loadbalancer": balancer.id} | parts)


def addresses(balancer: Balancer) -> list[api.LoadBalancerAddress]:
    """Where clients reach it. With the PROXY protocol nothing may be cut short."""
    proxied = any(listener.proxy_protocol in PROXIES for listener in balancer.listeners.values())
    mode = api.LoadBalancerAddress.IP_MODE_PROXY if proxied else api.LoadBalancerAddress.IP_MODE_VIP
    return [api.LoadBalancerAddress(ip=address, ip_mode=mode) for address in balancer.addresses]
