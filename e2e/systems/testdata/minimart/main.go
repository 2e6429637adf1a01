// Command minimart is the server of the stack minimart: it has the port and the paths of its
// environment. The charts of other systems run it, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) }
	}
	mux := http.NewServeMux()
	for path, text := range map[string]string{"/liveness": "alive", "/readiness": "ready",
		os.Getenv("REST_STAT"): "stat", os.Getenv("REST_BEV"): "bev"} {
		if path != "" {
			mux.HandleFunc("GET "+path, answer(text))
		}
	}
	server := &http.Server{Addr: ":" + os.Getenv("HTTP_PORT"), ReadHeaderTimeout: 10 * time.Second, Handler: mux}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
