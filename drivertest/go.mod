module github.com/holdfastlock/holdfast/drivertest

go 1.26.0

replace github.com/holdfastlock/holdfast => ../
