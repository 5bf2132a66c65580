package main

import (
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// nodes maps instances to nodes, from the informer that the controllers share, without calls.
type nodes struct {
	lister atomic.Pointer[corelisters.NodeLister]
}

func (n *nodes) follow(informer coreinformers.NodeInformer) {
	lister := informer.Lister()
	n.lister.Store(&lister)
}

func (n *nodes) get(name types.NodeName) (*v1.Node, error) {
	lister := n.lister.Load()
	if lister == nil {
		return nil, fmt.Errorf("nodes are not listed yet")
	}
	return (*lister).Get(string(name))
}

// byMachine returns the names of all nodes by the IDs of their instances.
func (n *nodes) byMachine() (map[string]types.NodeName, error) {
	lister := n.lister.Load()
	if lister == nil {
		return nil, fmt.Errorf("nodes are not listed yet")
	}
	all, err := (*lister).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	names := make(map[string]types.NodeName, len(all))
	for _, node := range all {
		if id, err := instanceID(node.Spec.ProviderID); err == nil {
			names[id] = types.NodeName(node.Name)
		}
	}
	return names, nil
}

// routes makes one call per route, as the interface requires.
type routes struct {
	client *client
	nodes  *nodes
}

// ListRoutes returns the whole table: the route controller ignores routes outside the cluster's CIDRs.
func (r *routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	table, err := r.client.listRoutes(ctx)
	if err != nil {
		return nil, err
	}
	names, err := r.nodes.byMachine()
	if err != nil {
		return nil, err
	}
	listed := make([]*cloudprovider.Route, 0, len(table))
	for _, one := range table {
		name := names[one.NextHopInstance]
		listed = append(listed, &cloudprovider.Route{
			Name:            one.ID,
			TargetNode:      name,
			DestinationCIDR: one.Destination,
			Blackhole:       one.Status != "active" || name == "",
		})
	}
	return listed, nil
}

func (r *routes) CreateRoute(ctx context.Context, cluster, _ string, wanted *cloudprovider.Route) error {
	node, err := r.nodes.get(wanted.TargetNode)
	if err != nil {
		return err
	}
	id, err := instanceID(node.Spec.ProviderID)
	if err != nil {
		return err
	}
	answer, err := r.client.changeRoutes(ctx, changeRoutes{Add: []addRoute{{
		Destination:     wanted.DestinationCIDR,
		NextHopInstance: id,
		Tags:            map[string]string{clusterTag(cluster): "owned", nodeTag: node.Name},
	}}})
	if err != nil {
		return err
	}
	return only(answer.Added)
}

func (r *routes) DeleteRoute(ctx context.Context, _ string, there *cloudprovider.Route) error {
	answer, err := r.client.changeRoutes(ctx, changeRoutes{Remove: []string{there.Name}})
	if err != nil {
		return err
	}
	err = only(answer.Removed)
	if refusal, refused := err.(*apiError); refused && refusal.Code == "not_found" {
		return nil
	}
	return err
}

func only(results []routeResult) error {
	if len(results) != 1 {
		return fmt.Errorf("the cloud answered %d results for one route", len(results))
	}
	if refusal := results[0].Error; refusal != nil {
		return refusal
	}
	return nil
}
