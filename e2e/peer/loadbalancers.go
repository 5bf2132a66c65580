package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
)

// Owner tags. They differ from those of adapter-sim, which no Go provider knows.
const (
	serviceTag = "kubernetes.io/service-name"
	nodeTag    = "kubernetes.io/node-name"
)

func clusterTag(cluster string) string {
	return "kubernetes.io/cluster/" + cluster
}

// States of load balancers.
const (
	active = "ACTIVE"
	failed = "ERROR"
)

// pollBackoff has the pauses between polls after a write: half a second at first, then growing, for a minute and a half in
// total.
var pollBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.2, Steps: 20}

// balancers creates a load balancer with a listener and a pool for each port. After each write it waits until the cloud has
// finished, because the cloud refuses further writes until then.
type balancers struct {
	client *client
	poll   wait.Backoff
}

func (b *balancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (b *balancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	there, err := b.find(ctx, cluster, service)
	if err != nil || there == nil {
		return nil, false, err
	}
	return status(there), true, nil
}

func (b *balancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	ports, err := wantedPorts(service, nodes, b.GetLoadBalancerName(ctx, cluster, service))
	if err != nil {
		return nil, err
	}
	there, err := b.find(ctx, cluster, service)
	if err != nil {
		return nil, err
	}
	if there == nil {
		there, err = b.create(ctx, cluster, service)
	} else {
		there, err = b.settled(ctx, there)
	}
	if err != nil {
		return nil, err
	}
	for _, port := range ports {
		if there, err = b.ensurePort(ctx, there, port); err != nil {
			return nil, fmt.Errorf("port %d: %w", port.number, err)
		}
	}
	if there, err = b.removeOthers(ctx, there, ports); err != nil {
		return nil, err
	}
	return status(there), nil
}

// UpdateLoadBalancer is called when nodes are added or removed. It changes only members.
func (b *balancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	ports, err := wantedPorts(service, nodes, b.GetLoadBalancerName(ctx, cluster, service))
	if err != nil {
		return err
	}
	there, err := b.find(ctx, cluster, service)
	if err != nil {
		return err
	}
	if there == nil {
		return fmt.Errorf("load balancer %s does not exist", b.GetLoadBalancerName(ctx, cluster, service))
	}
	if there, err = b.settled(ctx, there); err != nil {
		return err
	}
	for _, port := range ports {
		listener := findListener(there, port)
		if listener == nil {
			return fmt.Errorf("load balancer %s does not listen on port %d", there.ID, port.number)
		}
		if there, err = b.ensureMembers(ctx, there, listener.PoolID, port.pool.Members); err != nil {
			return err
		}
	}
	return nil
}

func (b *balancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	there, err := b.find(ctx, cluster, service)
	if err != nil || there == nil {
		return err
	}
	if there.Status != failed {
		if there, err = b.settled(ctx, there); err != nil {
			return err
		}
	}
	if err := b.client.deleteLoadBalancer(ctx, there.ID); err != nil && !isNotFound(err) {
		return err
	}
	return b.until(ctx, there.ID, func(_ *loadBalancer, gone bool) bool { return gone })
}

// find costs one call: the cloud filters by tags, and the name decides.
func (b *balancers) find(ctx context.Context, cluster string, service *v1.Service) (*loadBalancer, error) {
	tagged, err := b.client.listLoadBalancers(ctx, serviceTag, service.Namespace+"/"+service.Name)
	if err != nil {
		return nil, err
	}
	name := b.GetLoadBalancerName(ctx, cluster, service)
	for i := range tagged {
		if tagged[i].Name == name {
			return &tagged[i], nil
		}
	}
	return nil, nil
}

func (b *balancers) create(ctx context.Context, cluster string, service *v1.Service) (*loadBalancer, error) {
	order := createLoadBalancer{
		Name:     b.GetLoadBalancerName(ctx, cluster, service),
		Scheme:   "internet",
		Families: families(service),
		Tags: map[string]string{
			clusterTag(cluster): "owned",
			serviceTag:          service.Namespace + "/" + service.Name,
		},
	}
	if service.Spec.LoadBalancerIP != "" {
		order.VIPs = []string{service.Spec.LoadBalancerIP}
	}
	made, err := b.client.createLoadBalancer(ctx, order)
	if err != nil {
		return nil, err
	}
	return b.active(ctx, made.ID)
}

// ensurePort creates the missing objects of a port, and updates those that differ.
func (b *balancers) ensurePort(ctx context.Context, there *loadBalancer, wanted wantedPort) (*loadBalancer, error) {
	listener := findListener(there, wanted)
	if listener == nil {
		return b.createPort(ctx, there, wanted)
	}
	poolID := listener.PoolID
	if !sameSet(listener.AllowedCIDRs, wanted.allowed) {
		err := b.client.updateListener(ctx, listener.ID, updateListener{AllowedCIDRs: wanted.allowed})
		if there, err = b.done(ctx, there, err); err != nil {
			return nil, err
		}
	}
	if pool := findPool(there, poolID); pool != nil && !sameSettings(pool, &wanted.pool) {
		change := updatePool{Persistence: wanted.pool.Persistence, HealthMonitor: wanted.pool.HealthMonitor}
		err := b.client.updatePool(ctx, poolID, change)
		if there, err = b.done(ctx, there, err); err != nil {
			return nil, err
		}
	}
	return b.ensureMembers(ctx, there, poolID, wanted.pool.Members)
}

// createPort creates the pool with its members, then the listener that uses it.
func (b *balancers) createPort(ctx context.Context, there *loadBalancer, wanted wantedPort) (*loadBalancer, error) {
	poolID := ""
	for _, pool := range there.Pools {
		// A process that ended between the two writes left the pool.
		if pool.Name == wanted.pool.Name {
			poolID = pool.ID
		}
	}
	if poolID == "" {
		made, err := b.client.createPool(ctx, there.ID, wanted.pool)
		if there, err = b.done(ctx, there, err); err != nil {
			return nil, err
		}
		poolID = made.ID
	}
	err := b.client.createListener(ctx, there.ID, createListener{
		Name:         wanted.pool.Name,
		Protocol:     wanted.protocol,
		Port:         wanted.number,
		AllowedCIDRs: wanted.allowed,
		PoolID:       poolID,
	})
	return b.done(ctx, there, err)
}

func (b *balancers) ensureMembers(ctx context.Context, there *loadBalancer, poolID string, members []member) (*loadBalancer, error) {
	pool := findPool(there, poolID)
	if pool == nil {
		return nil, fmt.Errorf("load balancer %s has no pool %q", there.ID, poolID)
	}
	if sameSet(pool.Members, members) {
		return there, nil
	}
	return b.done(ctx, there, b.client.setMembers(ctx, poolID, members))
}

// removeOthers deletes ports that the Service no longer has: the listener first, because a pool in use cannot be deleted.
func (b *balancers) removeOthers(ctx context.Context, there *loadBalancer, wanted []wantedPort) (*loadBalancer, error) {
	for _, listener := range there.Listeners {
		if isWanted(listener, wanted) {
			continue
		}
		var err error
		if there, err = b.done(ctx, there, b.client.deleteListener(ctx, listener.ID)); err != nil {
			return nil, err
		}
		if there, err = b.done(ctx, there, b.client.deletePool(ctx, listener.PoolID)); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// done waits until an accepted write has finished.
func (b *balancers) done(ctx context.Context, there *loadBalancer, err error) (*loadBalancer, error) {
	if err != nil {
		return nil, err
	}
	return b.active(ctx, there.ID)
}

// settled waits for a write of another client, if one is in progress.
func (b *balancers) settled(ctx context.Context, there *loadBalancer) (*loadBalancer, error) {
	switch there.Status {
	case active:
		return there, nil
	case failed:
		return nil, fmt.Errorf("load balancer %s is in ERROR: delete the Service", there.ID)
	default:
		return b.active(ctx, there.ID)
	}
}

func (b *balancers) active(ctx context.Context, id string) (*loadBalancer, error) {
	var last *loadBalancer
	err := b.until(ctx, id, func(seen *loadBalancer, _ bool) bool {
		last = seen
		return seen == nil || seen.Status == active || seen.Status == failed
	})
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, fmt.Errorf("load balancer %s is gone", id)
	case last.Status == failed:
		return nil, fmt.Errorf("load balancer %s went into ERROR", id)
	default:
		return last, nil
	}
}

// until polls the load balancer, with a pause before each call, until it satisfies the condition.
func (b *balancers) until(ctx context.Context, id string, wished func(seen *loadBalancer, gone bool) bool) error {
	backoff := b.poll
	for backoff.Steps > 0 {
		if err := b.client.sleep(ctx, backoff.Step()); err != nil {
			return err
		}
		seen, err := b.client.getLoadBalancer(ctx, id)
		switch {
		case isNotFound(err):
			if wished(nil, true) {
				return nil
			}
		case err != nil:
			return err
		case wished(&seen, false):
			return nil
		}
	}
	return fmt.Errorf("load balancer %s is still not ready", id)
}

func status(there *loadBalancer) *v1.LoadBalancerStatus {
	var ingress []v1.LoadBalancerIngress
	for _, vip := range there.VIPs {
		ingress = append(ingress, v1.LoadBalancerIngress{IP: vip})
	}
	return &v1.LoadBalancerStatus{Ingress: ingress}
}
