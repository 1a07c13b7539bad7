module github.com/holdfastlock/holdfast/redislock/rueidisconn

go 1.26.0

replace github.com/holdfastlock/holdfast => ../..

require (
	github.com/holdfastlock/holdfast v0.0.0
	github.com/redis/rueidis v1.0.79
)

require (
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
