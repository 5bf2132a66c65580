package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// providerName is also the scheme of provider IDs.
const providerName = "sim"

func init() {
	cloudprovider.RegisterCloudProvider(providerName, func(file io.Reader) (cloudprovider.Interface, error) {
		return newProvider(file)
	})
}

// cloudConfig is the file of --cloud-config, in JSON.
type cloudConfig struct {
	// URL is the base URL of the simcloud.
	URL string `json:"url"`
	// Token is the bearer token, if the simcloud requires one.
	Token string `json:"token"`
	// Project is the required project of the token; if it is empty, the project is not checked.
	Project string `json:"project"`
}

func readConfig(file io.Reader) (cloudConfig, error) {
	var read cloudConfig
	if file == nil {
		return read, fmt.Errorf("--cloud-config is missing: a JSON file with url, and token and project if need be")
	}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return read, fmt.Errorf("--cloud-config: %w", err)
	}
	parsed, err := url.Parse(read.URL)
	if err != nil || parsed.Host == "" {
		return read, fmt.Errorf("--cloud-config: invalid url %q: expected a URL such as http://127.0.0.1:9797", read.URL)
	}
	return read, nil
}

// provider implements the interface that the controllers of k8s.io/cloud-provider call.
type provider struct {
	client  *client
	project string
	nodes   *nodes
}

func newProvider(file io.Reader) (*provider, error) {
	config, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	return &provider{client: newClient(config.URL, config.Token), project: config.Project, nodes: &nodes{}}, nil
}

// Initialize fails at once on credentials of another project, as vendors' providers do. Cost: one call if a project is set.
func (p *provider) Initialize(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	if err := p.checkProject(stop); err != nil {
		klog.Fatal(err)
	}
}

// SetInformers is called before the controllers start.
func (p *provider) SetInformers(factory informers.SharedInformerFactory) {
	p.nodes.follow(factory.Core().V1().Nodes())
}

func (p *provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return &balancers{client: p.client, poll: pollBackoff}, true
}

func (p *provider) InstancesV2() (cloudprovider.InstancesV2, bool) {
	return &instances{client: p.client}, true
}

func (p *provider) Routes() (cloudprovider.Routes, bool) {
	return &routes{client: p.client, nodes: p.nodes}, true
}

func (p *provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

func (p *provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

func (p *provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

func (p *provider) ProviderName() string { return providerName }

// HasClusterID returns true: tags contain the name of --cluster-name.
func (p *provider) HasClusterID() bool { return true }

// checkProject refuses a token of another project.
func (p *provider) checkProject(stop <-chan struct{}) error {
	if p.project == "" {
		return nil
	}
	ctx := wait.ContextForChannel(stop)
	there, err := p.client.project(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the project of the token from %s: %w", p.client.base, err)
	}
	if there.Project != p.project {
		return fmt.Errorf("the token belongs to project %q, but --cloud-config requires %q", there.Project, p.project)
	}
	return nil
}
