// Package limiter allows each client a number of requests in a span of time.
package limiter

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

var ErrUnknownClient = errors.New("unknown client")

type bucket struct {
	tokens float64
	last   time.Time
}

// Limiter is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	rate    float64
	burst   int
	buckets map[string]*bucket
	now     func() time.Time
}

func New(rate float64, burst int) *Limiter {
	return &Limiter{
		rate:    rate,
		burst:   burst,
		buckets: make(map[string]*bucket),
		now:     time.Now,
	}
}

// Allow reports whether the client may make a request now.
func (l *Limiter) Allow(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.refill(client)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (l *Limiter) refill(client string) *bucket {
	now := l.now()
	b, ok := l.buckets[client]
	if !ok {
		b = &bucket{tokens: float64(l.burst), last: now}
		l.buckets[client] = b
		return b
	}
	elapsed := now.Sub(b.last).Seconds()
	b.tokens += elapsed * l.rate
	if b.tokens > float64(l.burst) {
		b.tokens = float64(l.burst)
	}
	b.last = now
	return b
}

func (l *Limiter) Remaining(client string) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets[client]
	if !ok {
		return 0, ErrUnknownClient
	}
	return int(b.tokens), nil
}

func (l *Limiter) Forget(client string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.buckets[client]; !ok {
		return fmt.Errorf("forget: %v", ErrUnknownClient)
	}
	delete(l.buckets, client)
	return nil
}

func (l *Limiter) Clients() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.buckets))
	for name := range l.buckets {
		names = append(names, name)
	}
	return names
}

func (l *Limiter) Sweep(age time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	removed := 0
	limit := l.now().Add(-age)
	for name, b := range l.buckets {
		if b.last.Before(limit) {
			delete(l.buckets, name)
			removed++
		}
	}
	return removed
}
