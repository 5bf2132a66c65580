package main

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/service/helpers"
)

// The defaults of health checks are those of adapter-sim.
const (
	probeInterval  = 10
	probeTimeout   = 5
	probeHealthy   = 2
	probeUnhealthy = 3
)

// wantedPort is the desired state of one port of a Service.
type wantedPort struct {
	protocol string
	number   int32
	// allowed is empty if all clients may connect.
	allowed []string
	pool    createPool
}

// wantedPorts returns the desired ports of a Service's load balancer. Pure.
func wantedPorts(service *v1.Service, nodes []*v1.Node, name string) ([]wantedPort, error) {
	allowed, err := allowedRanges(service)
	if err != nil {
		return nil, err
	}
	var wanted []wantedPort
	for _, port := range service.Spec.Ports {
		if port.NodePort == 0 {
			return nil, fmt.Errorf("port %d has no node port", port.Port)
		}
		protocol := strings.ToUpper(string(port.Protocol))
		wanted = append(wanted, wantedPort{
			protocol: protocol,
			number:   port.Port,
			allowed:  allowed,
			pool: createPool{
				Name:          fmt.Sprintf("%s-%s-%d", name, strings.ToLower(protocol), port.Port),
				Protocol:      protocol,
				Persistence:   wantedPersistence(service),
				HealthMonitor: wantedMonitor(service, port.Protocol),
				Members:       members(nodes, families(service), port.NodePort),
			},
		})
	}
	return wanted, nil
}

func allowedRanges(service *v1.Service) ([]string, error) {
	ranges, err := helpers.GetLoadBalancerSourceRanges(service)
	if err != nil {
		return nil, err
	}
	if helpers.IsAllowAll(ranges) {
		return []string{}, nil
	}
	allowed := ranges.StringSlice()
	slices.Sort(allowed)
	return allowed, nil
}

func families(service *v1.Service) []string {
	var named []string
	for _, family := range service.Spec.IPFamilies {
		named = append(named, strings.ToLower(string(family)))
	}
	if len(named) == 0 {
		return []string{"ipv4"}
	}
	return named
}

func wantedPersistence(service *v1.Service) *persistence {
	if service.Spec.SessionAffinity != v1.ServiceAffinityClientIP {
		return nil
	}
	wanted := &persistence{Kind: "source_ip"}
	if config := service.Spec.SessionAffinityConfig; config != nil && config.ClientIP != nil {
		wanted.Timeout = config.ClientIP.TimeoutSeconds
	}
	return wanted
}

// wantedMonitor returns a TCP check of the node port, or, with externalTrafficPolicy Local, an HTTP check of the node's health
// port. UDP and SCTP ports are not checked.
func wantedMonitor(service *v1.Service, protocol v1.Protocol) *healthMonitor {
	monitor := &healthMonitor{
		Protocol:           "TCP",
		Interval:           probeInterval,
		Timeout:            probeTimeout,
		HealthyThreshold:   probeHealthy,
		UnhealthyThreshold: probeUnhealthy,
	}
	path, port := helpers.GetServiceHealthCheckPathPort(service)
	switch {
	case port != 0:
		monitor.Protocol, monitor.Path, monitor.Port = "HTTP", &path, &port
	case protocol != v1.ProtocolTCP:
		return nil
	}
	return monitor
}

// members returns the nodes' first internal address of each address family of the load balancer.
func members(nodes []*v1.Node, families []string, nodePort int32) []member {
	// Not nil, because the cloud expects a list.
	all := []member{}
	for _, node := range nodes {
		id, err := instanceID(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		for _, family := range families {
			if address := internalIP(node, family); address != "" {
				all = append(all, member{Address: address, Port: nodePort, Weight: 1, InstanceID: id})
			}
		}
	}
	return all
}

func internalIP(node *v1.Node, family string) string {
	for _, address := range node.Status.Addresses {
		ip := net.ParseIP(address.Address)
		if address.Type == v1.NodeInternalIP && ip != nil && (ip.To4() != nil) == (family == "ipv4") {
			return address.Address
		}
	}
	return ""
}

func findListener(there *loadBalancer, wanted wantedPort) *listener {
	for i := range there.Listeners {
		if isPort(there.Listeners[i], wanted) {
			return &there.Listeners[i]
		}
	}
	return nil
}

func isPort(listener listener, wanted wantedPort) bool {
	return listener.Protocol == wanted.protocol && listener.Port == wanted.number
}

func isWanted(listener listener, wanted []wantedPort) bool {
	return slices.ContainsFunc(wanted, func(port wantedPort) bool { return isPort(listener, port) })
}

func findPool(there *loadBalancer, id string) *pool {
	for i := range there.Pools {
		if there.Pools[i].ID == id {
			return &there.Pools[i]
		}
	}
	return nil
}

func sameSettings(there *pool, wanted *createPool) bool {
	return reflect.DeepEqual(there.Persistence, wanted.Persistence) &&
		reflect.DeepEqual(there.HealthMonitor, wanted.HealthMonitor)
}

// sameSet ignores the order, which the cloud does not keep.
func sameSet[T comparable](a, b []T) bool {
	count := map[T]int{}
	for _, one := range a {
		count[one]++
	}
	for _, one := range b {
		count[one]--
	}
	for _, left := range count {
		if left != 0 {
			return false
		}
	}
	return true
}
