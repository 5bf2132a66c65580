package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// callTimeout is the deadline of one attempt.
	callTimeout = 30 * time.Second
	// maxAttempts, firstPause and longestPause are those of the AWS SDK for Go; README.md compares them with others.
	maxAttempts  = 3
	firstPause   = time.Second
	longestPause = 20 * time.Second
	// pageSize is the largest page size that the cloud allows.
	pageSize = 500
)

// client calls simcloud's HTTP API: one method per operation.
type client struct {
	base  string
	token string
	http  *http.Client
	// sleep waits until the time has passed or the context has ended. Tests replace it.
	sleep func(context.Context, time.Duration) error
}

func newClient(base, token string) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// Enough for all workers: with the default of two idle connections, further calls would each open a new one.
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns
	return &client{
		base:  strings.TrimRight(base, "/"),
		token: token,
		http:  &http.Client{Transport: transport, Timeout: callTimeout},
		sleep: sleep,
	}
}

// apiError is an error answer of the cloud.
type apiError struct {
	Status  int
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("the cloud answered %d %s: %s", e.Status, e.Code, e.Message)
}

func isNotFound(err error) bool {
	var refusal *apiError
	return errors.As(err, &refusal) && refusal.Status == http.StatusNotFound
}

func (c *client) project(ctx context.Context) (project, error) {
	var answer project
	return answer, c.call(ctx, http.MethodGet, "/v1/project", nil, &answer)
}

func (c *client) getInstance(ctx context.Context, id string) (instance, error) {
	var answer instance
	return answer, c.call(ctx, http.MethodGet, "/v1/instances/"+url.PathEscape(id), nil, &answer)
}

func (c *client) findInstances(ctx context.Context, name string) ([]instance, error) {
	var answer struct {
		Instances []instance `json:"instances"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/instances?name="+url.QueryEscape(name), nil, &answer)
	return answer.Instances, err
}

// listLoadBalancers returns all load balancers with this tag, usually one. It makes one call per page.
func (c *client) listLoadBalancers(ctx context.Context, key, value string) ([]loadBalancer, error) {
	filter := "&tag=" + url.QueryEscape(key+":"+value)
	var all []loadBalancer
	err := c.pages(ctx, "/v1/load-balancers", filter, func(page []byte) error {
		var read struct {
			Items []loadBalancer `json:"load_balancers"`
		}
		err := json.Unmarshal(page, &read)
		all = append(all, read.Items...)
		return err
	})
	return all, err
}

func (c *client) getLoadBalancer(ctx context.Context, id string) (loadBalancer, error) {
	var answer loadBalancer
	return answer, c.call(ctx, http.MethodGet, "/v1/load-balancers/"+url.PathEscape(id), nil, &answer)
}

func (c *client) createLoadBalancer(ctx context.Context, order createLoadBalancer) (loadBalancer, error) {
	var answer loadBalancer
	return answer, c.call(ctx, http.MethodPost, "/v1/load-balancers", order, &answer)
}

func (c *client) deleteLoadBalancer(ctx context.Context, id string) error {
	path := "/v1/load-balancers/" + url.PathEscape(id) + "?cascade=true"
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

func (c *client) createPool(ctx context.Context, balancer string, order createPool) (pool, error) {
	var answer pool
	path := "/v1/load-balancers/" + url.PathEscape(balancer) + "/pools"
	return answer, c.call(ctx, http.MethodPost, path, order, &answer)
}

func (c *client) updatePool(ctx context.Context, id string, change updatePool) error {
	return c.call(ctx, http.MethodPatch, "/v1/pools/"+url.PathEscape(id), change, nil)
}

func (c *client) deletePool(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/pools/"+url.PathEscape(id), nil, nil)
}

func (c *client) setMembers(ctx context.Context, pool string, members []member) error {
	order := struct {
		Members []member `json:"members"`
	}{members}
	return c.call(ctx, http.MethodPut, "/v1/pools/"+url.PathEscape(pool)+"/members", order, nil)
}

func (c *client) createListener(ctx context.Context, balancer string, order createListener) error {
	path := "/v1/load-balancers/" + url.PathEscape(balancer) + "/listeners"
	return c.call(ctx, http.MethodPost, path, order, nil)
}

func (c *client) updateListener(ctx context.Context, id string, change updateListener) error {
	return c.call(ctx, http.MethodPatch, "/v1/listeners/"+url.PathEscape(id), change, nil)
}

func (c *client) deleteListener(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/listeners/"+url.PathEscape(id), nil, nil)
}

func (c *client) listRoutes(ctx context.Context) ([]route, error) {
	var all []route
	err := c.pages(ctx, "/v1/routes", "", func(page []byte) error {
		var read struct {
			Items []route `json:"routes"`
		}
		err := json.Unmarshal(page, &read)
		all = append(all, read.Items...)
		return err
	})
	return all, err
}

// changeRoutes sends a batch, the only way to change routes; each item succeeds or fails on its own.
func (c *client) changeRoutes(ctx context.Context, batch changeRoutes) (changedRoutes, error) {
	var answer changedRoutes
	return answer, c.call(ctx, http.MethodPost, "/v1/routes:batch", batch, &answer)
}

// pages reads all pages of a listing.
func (c *client) pages(ctx context.Context, path, filter string, take func([]byte) error) error {
	path = fmt.Sprintf("%s?limit=%d%s", path, pageSize, filter)
	next := ""
	for {
		var page json.RawMessage
		if err := c.call(ctx, http.MethodGet, path+next, nil, &page); err != nil {
			return err
		}
		if err := take(page); err != nil {
			return fmt.Errorf("GET %s: %w", path, err)
		}
		var end struct {
			Next *string `json:"next"`
		}
		if err := json.Unmarshal(page, &end); err != nil {
			return fmt.Errorf("GET %s: %w", path, err)
		}
		if end.Next == nil {
			return nil
		}
		next = "&cursor=" + url.QueryEscape(*end.Next)
	}
}

// call makes one call, with retries like those of most vendors' SDKs.
func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		wait, err := c.attempt(ctx, method, path, content, answer)
		if err == nil || wait == nil || attempt == maxAttempts {
			return err
		}
		if err := c.sleep(ctx, wait(attempt)); err != nil {
			return err
		}
	}
}

// attempt sends one request. With an error it returns the pause before the next attempt, or nil if a retry would not help.
func (c *client) attempt(ctx context.Context, method, path string, content []byte, answer any) (pause, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.afterSilence(ctx, method), err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return c.afterSilence(ctx, method), err
	}
	if response.StatusCode >= http.StatusBadRequest {
		refusal := &apiError{Status: response.StatusCode}
		// Without a readable body, the status is the message.
		_ = json.Unmarshal(text, refusal)
		return afterRefusal(method, response), fmt.Errorf("%s %s: %w", method, path, refusal)
	}
	if answer == nil {
		return nil, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil, nil
}

// pause returns the time to wait after this number of attempts.
type pause func(attempt int) time.Duration

func (c *client) afterSilence(ctx context.Context, method string) pause {
	if ctx.Err() != nil || method != http.MethodGet {
		// The outcome of a write is unknown: the controller requeues the object and reads the state again.
		return nil
	}
	return growing
}

func afterRefusal(method string, response *http.Response) pause {
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds >= 0 {
			return func(int) time.Duration { return time.Duration(seconds) * time.Second }
		}
		return growing
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		if method == http.MethodGet {
			return growing
		}
	}
	return nil
}

// growing doubles the pause, with jitter, so that many clients do not retry at once.
func growing(attempt int) time.Duration {
	longest := min(firstPause<<(attempt-1), longestPause)
	return time.Duration(rand.Int64N(int64(longest) + 1))
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
