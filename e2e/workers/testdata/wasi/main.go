// Command wasi responds to a request by the conventions of CGI.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	switch path := os.Getenv("PATH_INFO"); path {
	case "/fail":
		fmt.Fprintln(os.Stderr, "failed as requested")
		os.Exit(3)
	case "/missing":
		fmt.Print("Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno such page\n")
	default:
		start := time.Now()
		time.Sleep(time.Hour) // of the clock of the module
		fmt.Printf("Content-Type: text/plain\nX-Slept: %t\n\n%s %s?%s %s %s", time.Since(start) >= time.Hour,
			os.Getenv("REQUEST_METHOD"), path, os.Getenv("QUERY_STRING"), os.Getenv("WASM_WORKER_KEY"),
			strings.ToUpper(string(body)))
	}
}
