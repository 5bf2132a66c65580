package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// instances looks up one instance per call, as the interface requires: by its ID, or by its name while the node has no
// provider ID.
type instances struct {
	client *client
}

func (i *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := i.find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (i *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	machine, err := i.find(ctx, node)
	return machine.Status == "stopped", err
}

func (i *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	machine, err := i.find(ctx, node)
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:       providerID(machine.Region, machine.ID),
		InstanceType:     machine.Type,
		NodeAddresses:    nodeAddresses(machine.Addresses),
		Zone:             machine.Zone,
		Region:           machine.Region,
		AdditionalLabels: nodeLabels(machine.Tags),
	}, nil
}

// find costs one call. It ignores a deleted instance that is still listed.
func (i *instances) find(ctx context.Context, node *v1.Node) (instance, error) {
	machine, err := i.look(ctx, node)
	if isNotFound(err) || (err == nil && machine.Status == "terminated") {
		return instance{}, cloudprovider.InstanceNotFound
	}
	return machine, err
}

func (i *instances) look(ctx context.Context, node *v1.Node) (instance, error) {
	if node.Spec.ProviderID != "" {
		id, err := instanceID(node.Spec.ProviderID)
		if err != nil {
			return instance{}, err
		}
		return i.client.getInstance(ctx, id)
	}
	found, err := i.client.findInstances(ctx, node.Name)
	if err != nil {
		return instance{}, err
	}
	switch len(found) {
	case 0:
		return instance{}, cloudprovider.InstanceNotFound
	case 1:
		return found[0], nil
	default:
		return instance{}, fmt.Errorf("%d instances have the name %s", len(found), node.Name)
	}
}

func providerID(region, id string) string {
	return providerName + "://" + region + "/" + id
}

func instanceID(providerID string) (string, error) {
	rest, ours := strings.CutPrefix(providerID, providerName+"://")
	region, id, whole := strings.Cut(rest, "/")
	if !ours || !whole || region == "" || id == "" || strings.Contains(id, "/") {
		return "", fmt.Errorf("invalid provider ID %q: expected %s://<region>/<instance-id>", providerID, providerName)
	}
	return id, nil
}

func nodeAddresses(addresses []address) []v1.NodeAddress {
	kinds := map[string]v1.NodeAddressType{
		"internal":     v1.NodeInternalIP,
		"external":     v1.NodeExternalIP,
		"hostname":     v1.NodeHostName,
		"internal_dns": v1.NodeInternalDNS,
		"external_dns": v1.NodeExternalDNS,
	}
	var translated []v1.NodeAddress
	for _, one := range addresses {
		if kind, known := kinds[one.Kind]; known {
			translated = append(translated, v1.NodeAddress{Type: kind, Address: one.Address})
		}
	}
	return translated
}

// nodeLabels returns the instance's tags that become labels of the Node.
func nodeLabels(tags map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range tags {
		if label, meant := strings.CutPrefix(key, "label/"); meant {
			labels[label] = value
		}
	}
	return labels
}
