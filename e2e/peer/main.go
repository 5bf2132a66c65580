// The cloud controller manager that a vendor of simcloud would ship in Go: k8s.io/cloud-provider with a provider for simcloud.
// README.md describes its purpose.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version
	"k8s.io/klog/v2"
)

func main() {
	defaults, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("cannot initialise the flags: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(defaults, initialise, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func initialise(completed *config.CompletedConfig) cloudprovider.Interface {
	wanted := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(wanted.Name, wanted.CloudConfigFile)
	if err != nil {
		klog.Fatalf("cannot start the cloud provider: %v", err)
	}
	if cloud == nil {
		klog.Fatalf("start it with --cloud-provider=%s and --cloud-config=FILE", providerName)
	}
	return cloud
}
