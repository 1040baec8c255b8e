-- Schema 2: what is read once a second is kept as well, in tables of the same three widths.

-- Of cards. NULL is a missing reading.
CREATE TABLE slow_samples (
    time_ms INTEGER NOT NULL,
    gpu INTEGER NOT NULL,
    fan_percent INTEGER,
    pcie_receive_bytes_per_second INTEGER,
    pcie_send_bytes_per_second INTEGER,
    energy_joules REAL,
    ecc_corrected INTEGER,
    ecc_uncorrected INTEGER,
    PRIMARY KEY (time_ms, gpu)
) WITHOUT ROWID;
CREATE TABLE slow_samples_10s (
    gpu INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    fan_percent_n INTEGER NOT NULL,
    fan_percent_min NUMERIC,
    fan_percent_mean REAL,
    fan_percent_max NUMERIC,
    pcie_receive_bytes_per_second_n INTEGER NOT NULL,
    pcie_receive_bytes_per_second_min NUMERIC,
    pcie_receive_bytes_per_second_mean REAL,
    pcie_receive_bytes_per_second_max NUMERIC,
    pcie_send_bytes_per_second_n INTEGER NOT NULL,
    pcie_send_bytes_per_second_min NUMERIC,
    pcie_send_bytes_per_second_mean REAL,
    pcie_send_bytes_per_second_max NUMERIC,
    energy_joules_n INTEGER NOT NULL,
    energy_joules_min NUMERIC,
    energy_joules_mean REAL,
    energy_joules_max NUMERIC,
    ecc_corrected_n INTEGER NOT NULL,
    ecc_corrected_min NUMERIC,
    ecc_corrected_mean REAL,
    ecc_corrected_max NUMERIC,
    ecc_uncorrected_n INTEGER NOT NULL,
    ecc_uncorrected_min NUMERIC,
    ecc_uncorrected_mean REAL,
    ecc_uncorrected_max NUMERIC,
    PRIMARY KEY (gpu, time_ms)
) WITHOUT ROWID;
CREATE TABLE slow_samples_1min (
    gpu INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    fan_percent_n INTEGER NOT NULL,
    fan_percent_min NUMERIC,
    fan_percent_mean REAL,
    fan_percent_max NUMERIC,
    pcie_receive_bytes_per_second_n INTEGER NOT NULL,
    pcie_receive_bytes_per_second_min NUMERIC,
    pcie_receive_bytes_per_second_mean REAL,
    pcie_receive_bytes_per_second_max NUMERIC,
    pcie_send_bytes_per_second_n INTEGER NOT NULL,
    pcie_send_bytes_per_second_min NUMERIC,
    pcie_send_bytes_per_second_mean REAL,
    pcie_send_bytes_per_second_max NUMERIC,
    energy_joules_n INTEGER NOT NULL,
    energy_joules_min NUMERIC,
    energy_joules_mean REAL,
    energy_joules_max NUMERIC,
    ecc_corrected_n INTEGER NOT NULL,
    ecc_corrected_min NUMERIC,
    ecc_corrected_mean REAL,
    ecc_corrected_max NUMERIC,
    ecc_uncorrected_n INTEGER NOT NULL,
    ecc_uncorrected_min NUMERIC,
    ecc_uncorrected_mean REAL,
    ecc_uncorrected_max NUMERIC,
    PRIMARY KEY (gpu, time_ms)
) WITHOUT ROWID;

-- Of the machine, whose `gpu` is 0, as no card's is: all tables are read alike.
CREATE TABLE host_samples (
    time_ms INTEGER NOT NULL,
    gpu INTEGER NOT NULL,
    host_cpu_percent REAL,
    host_memory_used_bytes INTEGER,
    host_disk_free_bytes INTEGER,
    PRIMARY KEY (time_ms, gpu)
) WITHOUT ROWID;
CREATE TABLE host_samples_10s (
    gpu INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    host_cpu_percent_n INTEGER NOT NULL,
    host_cpu_percent_min NUMERIC,
    host_cpu_percent_mean REAL,
    host_cpu_percent_max NUMERIC,
    host_memory_used_bytes_n INTEGER NOT NULL,
    host_memory_used_bytes_min NUMERIC,
    host_memory_used_bytes_mean REAL,
    host_memory_used_bytes_max NUMERIC,
    host_disk_free_bytes_n INTEGER NOT NULL,
    host_disk_free_bytes_min NUMERIC,
    host_disk_free_bytes_mean REAL,
    host_disk_free_bytes_max NUMERIC,
    PRIMARY KEY (gpu, time_ms)
) WITHOUT ROWID;
CREATE TABLE host_samples_1min (
    gpu INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    host_cpu_percent_n INTEGER NOT NULL,
    host_cpu_percent_min NUMERIC,
    host_cpu_percent_mean REAL,
    host_cpu_percent_max NUMERIC,
    host_memory_used_bytes_n INTEGER NOT NULL,
    host_memory_used_bytes_min NUMERIC,
    host_memory_used_bytes_mean REAL,
    host_memory_used_bytes_max NUMERIC,
    host_disk_free_bytes_n INTEGER NOT NULL,
    host_disk_free_bytes_min NUMERIC,
    host_disk_free_bytes_mean REAL,
    host_disk_free_bytes_max NUMERIC,
    PRIMARY KEY (gpu, time_ms)
) WITHOUT ROWID;
