package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
)

// answer is the cloud's answer to one call.
type answer struct {
	call       string
	status     int
	retryAfter string
	body       string
}

// script starts a cloud that answers these calls in this order. Its client does not wait, but records the pauses.
func script(t *testing.T, answers ...answer) (*client, *[]time.Duration) {
	t.Helper()
	next := 0
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if next == len(answers) {
			t.Errorf("unexpected call: %s %s", request.Method, request.URL)
			writer.WriteHeader(http.StatusTeapot)
			return
		}
		one := answers[next]
		next++
		if call := request.Method + " " + request.URL.String(); call != one.call {
			t.Errorf("call %d is %s, expected %s", next, call, one.call)
		}
		if one.retryAfter != "" {
			writer.Header().Set("Retry-After", one.retryAfter)
		}
		if one.status != 0 {
			writer.WriteHeader(one.status)
		}
		_, _ = writer.Write([]byte(one.body))
	}))
	t.Cleanup(func() {
		server.Close()
		if next < len(answers) {
			t.Errorf("%s was not called", answers[next].call)
		}
	})
	var pauses []time.Duration
	client := newClient(server.URL, "")
	client.sleep = func(_ context.Context, pause time.Duration) error {
		pauses = append(pauses, pause)
		return nil
	}
	return client, &pauses
}

func TestThrottledCallHasThreeAttempts(t *testing.T) {
	throttled := answer{call: "GET /v1/instances/i-1", status: 429, retryAfter: "7", body: `{"code": "throttled"}`}
	client, pauses := script(t, throttled, throttled, throttled)
	_, err := client.getInstance(context.Background(), "i-1")
	var refusal *apiError
	if !errors.As(err, &refusal) || refusal.Code != "throttled" {
		t.Errorf("the error is %v", err)
	}
	if wanted := []time.Duration{7 * time.Second, 7 * time.Second}; !reflect.DeepEqual(*pauses, wanted) {
		t.Errorf("it waited for %v", *pauses)
	}
}

func TestWriteWithUnknownOutcomeIsNotRepeated(t *testing.T) {
	for _, status := range []int{500, 502, 504} {
		client, _ := script(t, answer{call: "DELETE /v1/pools/pool-1", status: status})
		if err := client.deletePool(context.Background(), "pool-1"); err == nil {
			t.Errorf("%d is no error", status)
		}
	}
}

func TestInstanceIsFoundByIDOrByName(t *testing.T) {
	named := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	known := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.NodeSpec{ProviderID: "sim://r/i-1"}}
	machine := `{"id": "i-1", "region": "r", "zone": "ra", "type": "s", "status": "stopped",
		"addresses": [{"kind": "internal", "address": "10.0.0.1"}], "tags": {"label/x": "1", "y": "2"}}`
	client, _ := script(t,
		answer{call: "GET /v1/instances?name=a", body: `{"instances": [` + machine + `]}`},
		answer{call: "GET /v1/instances/i-1", body: machine},
		answer{call: "GET /v1/instances/i-1", status: 404, body: `{"code": "not_found"}`},
		answer{call: "GET /v1/instances?name=a", body: `{"instances": []}`},
		answer{call: "GET /v1/instances?name=a", body: `{"instances": [` + machine + `,` + machine + `]}`},
	)
	all := &instances{client: client}
	ctx := context.Background()
	wanted := &cloudprovider.InstanceMetadata{
		ProviderID: "sim://r/i-1", InstanceType: "s", Zone: "ra", Region: "r",
		NodeAddresses:    []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}},
		AdditionalLabels: map[string]string{"x": "1"},
	}
	if metadata, err := all.InstanceMetadata(ctx, named); err != nil || !reflect.DeepEqual(metadata, wanted) {
		t.Errorf("%+v, %v", metadata, err)
	}
	if shutdown, err := all.InstanceShutdown(ctx, known); err != nil || !shutdown {
		t.Errorf("shut down: %v, %v", shutdown, err)
	}
	if exists, err := all.InstanceExists(ctx, known); err != nil || exists {
		t.Errorf("exists: %v, %v", exists, err)
	}
	if _, err := all.InstanceMetadata(ctx, named); !errors.Is(err, cloudprovider.InstanceNotFound) {
		t.Errorf("no instance of this name: %v", err)
	}
	if _, err := all.InstanceExists(ctx, named); err == nil {
		t.Error("two instances of the same name are not an error")
	}
}

func TestProviderIDOfAnotherCloudIsRefused(t *testing.T) {
	for _, id := range []string{"aws:///z/i-1", "sim://i-1", "sim:///i-1", "sim://r/", "sim://r/i-1/x", "i-1"} {
		if found, err := instanceID(id); err == nil {
			t.Errorf("%s is %s", id, found)
		}
	}
}

func TestLoadBalancerIsCreatedUpdatedAndDeleted(t *testing.T) {
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "7c1ff02e-0c8b-4c6e-9c39-b1b1a0d0c001"},
		Spec:       v1.ServiceSpec{Ports: []v1.ServicePort{{Protocol: v1.ProtocolTCP, Port: 80, NodePort: 30080}}},
	}
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       v1.NodeSpec{ProviderID: "sim://r/i-1"},
		Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}},
	}
	const name = "a7c1ff02e0c8b4c6e9c39b1b1a0d0c00"
	wanted, err := wantedPorts(service, []*v1.Node{node}, name)
	if err != nil {
		t.Fatal(err)
	}
	monitor, _ := json.Marshal(wanted[0].pool.HealthMonitor)
	members, _ := json.Marshal(wanted[0].pool.Members)
	bare := `{"id": "lb-1", "name": "` + name + `", "vips": ["192.0.2.1"], "status": "`
	whole := bare + `ACTIVE", "listeners": [{"id": "ls-1", "protocol": "TCP", "port": 80, "pool_id": "pool-1"}],
		"pools": [{"id": "pool-1", "health_monitor": ` + string(monitor) + `, "members": ` + string(members) + `}]}`
	list := "GET /v1/load-balancers?limit=500&tag=kubernetes.io%2Fservice-name%3Adefault%2Fweb"
	get := "GET /v1/load-balancers/lb-1"
	client, pauses := script(t,
		answer{call: list, body: `{"load_balancers": [{"name": "another"}], "next": null}`},
		answer{call: "POST /v1/load-balancers", status: 202, body: bare + `PENDING_CREATE"}`},
		answer{call: get, body: bare + `PENDING_CREATE"}`},
		answer{call: get, body: bare + `ACTIVE"}`},
		answer{call: "POST /v1/load-balancers/lb-1/pools", status: 202, body: `{"id": "pool-1"}`},
		answer{call: get, body: bare + `ACTIVE"}`},
		answer{call: "POST /v1/load-balancers/lb-1/listeners", status: 202, body: `{"id": "ls-1"}`},
		answer{call: get, body: whole},
		// Repeated without changes.
		answer{call: list, body: `{"load_balancers": [` + whole + `], "next": null}`},
		answer{call: list, body: `{"load_balancers": [` + whole + `], "next": null}`},
		// A node is removed.
		answer{call: list, body: `{"load_balancers": [` + whole + `], "next": null}`},
		answer{call: "PUT /v1/pools/pool-1/members", status: 202, body: `{}`},
		answer{call: get, body: whole},
		// The Service is deleted.
		answer{call: list, body: `{"load_balancers": [` + whole + `], "next": null}`},
		answer{call: "DELETE /v1/load-balancers/lb-1?cascade=true", status: 202, body: whole},
		answer{call: get, status: 404, body: `{"code": "not_found"}`},
	)
	all := &balancers{client: client, poll: wait.Backoff{Duration: time.Second, Factor: 2, Steps: 3}}
	ctx := context.Background()
	for range 2 {
		status, err := all.EnsureLoadBalancer(ctx, "kubernetes", service, []*v1.Node{node})
		if err != nil || len(status.Ingress) != 1 || status.Ingress[0].IP != "192.0.2.1" {
			t.Fatalf("%v, %v", status, err)
		}
	}
	for _, nodes := range [][]*v1.Node{{node}, {}} {
		if err := all.UpdateLoadBalancer(ctx, "kubernetes", service, nodes); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.EnsureLoadBalancerDeleted(ctx, "kubernetes", service); err != nil {
		t.Fatal(err)
	}
	if wanted := []time.Duration{1, 2, 1, 1, 1, 1}; !reflect.DeepEqual(*pauses, seconds(wanted)) {
		t.Errorf("it waited for %v", *pauses)
	}
}

func TestInvalidConfigurationIsRefused(t *testing.T) {
	for _, text := range []string{"", "{}", `{"url": "nowhere"}`, `{"url": "http://a", "tokn": "x"}`} {
		if read, err := readConfig(strings.NewReader(text)); err == nil {
			t.Errorf("%s is %v", text, read)
		}
	}
}

func seconds(numbers []time.Duration) []time.Duration {
	for i := range numbers {
		numbers[i] *= time.Second
	}
	return numbers
}
