package main

// The part of simcloud's JSON API that the provider uses. Source: adapters/sim/README.md.

type project struct {
	Account string `json:"account"`
	Project string `json:"project"`
	Region  string `json:"region"`
}

type instance struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Status    string            `json:"status"`
	Type      string            `json:"type"`
	Zone      string            `json:"zone"`
	Region    string            `json:"region"`
	Addresses []address         `json:"addresses"`
	Tags      map[string]string `json:"tags"`
}

type address struct {
	Kind    string `json:"kind"`
	Address string `json:"address"`
}

type loadBalancer struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	VIPs      []string   `json:"vips"`
	Listeners []listener `json:"listeners"`
	Pools     []pool     `json:"pools"`
}

type listener struct {
	ID           string   `json:"id"`
	Protocol     string   `json:"protocol"`
	Port         int32    `json:"port"`
	AllowedCIDRs []string `json:"allowed_cidrs"`
	PoolID       string   `json:"pool_id"`
}

type pool struct {
	ID            string         `json:"id"`
	Name          string         `json:"name"`
	Persistence   *persistence   `json:"persistence"`
	HealthMonitor *healthMonitor `json:"health_monitor"`
	Members       []member       `json:"members"`
}

type persistence struct {
	Kind    string `json:"kind"`
	Timeout *int32 `json:"timeout"`
}

type healthMonitor struct {
	Protocol           string  `json:"protocol"`
	Port               *int32  `json:"port"`
	Path               *string `json:"path"`
	Interval           int     `json:"interval"`
	Timeout            int     `json:"timeout"`
	HealthyThreshold   int     `json:"healthy_threshold"`
	UnhealthyThreshold int     `json:"unhealthy_threshold"`
}

type member struct {
	Address    string `json:"address"`
	Port       int32  `json:"port"`
	Weight     int    `json:"weight"`
	InstanceID string `json:"instance_id,omitempty"`
}

type createLoadBalancer struct {
	Name     string            `json:"name"`
	Scheme   string            `json:"scheme"`
	Families []string          `json:"families"`
	VIPs     []string          `json:"vips,omitempty"`
	Tags     map[string]string `json:"tags"`
}

type createPool struct {
	Name          string         `json:"name"`
	Protocol      string         `json:"protocol"`
	Persistence   *persistence   `json:"persistence"`
	HealthMonitor *healthMonitor `json:"health_monitor"`
	Members       []member       `json:"members"`
}

// updatePool removes fields that are null.
type updatePool struct {
	Persistence   *persistence   `json:"persistence"`
	HealthMonitor *healthMonitor `json:"health_monitor"`
}

type createListener struct {
	Name         string   `json:"name"`
	Protocol     string   `json:"protocol"`
	Port         int32    `json:"port"`
	AllowedCIDRs []string `json:"allowed_cidrs"`
	PoolID       string   `json:"pool_id"`
}

type updateListener struct {
	AllowedCIDRs []string `json:"allowed_cidrs"`
}

type route struct {
	ID              string `json:"id"`
	Destination     string `json:"destination"`
	NextHopInstance string `json:"next_hop_instance"`
	Status          string `json:"status"`
}

type changeRoutes struct {
	Add    []addRoute `json:"add,omitempty"`
	Remove []string   `json:"remove,omitempty"`
}

type addRoute struct {
	Destination     string            `json:"destination"`
	NextHopInstance string            `json:"next_hop_instance"`
	Tags            map[string]string `json:"tags"`
}

type changedRoutes struct {
	Added   []routeResult `json:"added"`
	Removed []routeResult `json:"removed"`
}

// routeResult has either a route or an error.
type routeResult struct {
	Error *apiError `json:"error"`
}
