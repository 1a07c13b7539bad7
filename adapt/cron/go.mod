module github.com/holdfastlock/holdfast/adapt/cron

go 1.26.0

replace github.com/holdfastlock/holdfast => ../..

require github.com/holdfastlock/holdfast v0.0.0

require github.com/robfig/cron/v3 v3.0.1
