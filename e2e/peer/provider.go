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

// providerName is the scheme of provider IDs too.
const providerName = "sim"

func init() {
	cloudprovider.RegisterCloudProvider(providerName, func(file io.Reader) (cloudprovider.Interface, error) {
		return newProvider(file)
	})
}

// cloudConfig is the file of --cloud-config, in JSON.
type cloudConfig struct {
	// URL is where the simcloud answers.
	URL string `json:"url"`
	// Token is the simcloud's, if it asks for one.
	Token string `json:"token"`
	// Project is the one that the token must be of; without it, none is checked.
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
		return read, fmt.Errorf("--cloud-config: url is %q: write one such as http://127.0.0.1:9797", read.URL)
	}
	return read, nil
}

// provider is what the controllers of k8s.io/cloud-provider call.
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

// Initialize fails at once on credentials of another project, as vendors' providers do. Cost: one call, with a project.
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

// HasClusterID: tags name the cluster by --cluster-name.
func (p *provider) HasClusterID() bool { return true }

// checkProject refuses a token of another project.
func (p *provider) checkProject(stop <-chan struct{}) error {
	if p.project == "" {
		return nil
	}
	ctx := wait.ContextForChannel(stop)
	there, err := p.client.project(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask %s whose the token is: %w", p.client.base, err)
	}
	if there.Project != p.project {
		return fmt.Errorf("the token is of project %q, and --cloud-config says %q", there.Project, p.project)
	}
	return nil
}
