/* Made by tools/golden_pretrain.py with PyTorch 1.13.0a0: do not edit. */
static const struct golden_note golden_notes_chaitanya_two[] = {
    {0, 0, "loss", 5.17021584}, {0, 0, "gradient", 166.501453}, {0, 1, "loss", 5.04809947}, {0, 1,
    "gradient", 208.793804}, {0, 2, "loss", 5.6607662}, {0, 2, "gradient", 198.273086}, {0, 3,
    "loss", 5.68291483}, {0, 3, "gradient", 160.911494}, {0, 4, "loss", 5.19398194}, {0, 4,
    "gradient", 130.405333}, {0, 5, "loss", 5.34723932}, {0, 5, "gradient", 134.941589}, {0, 6,
    "loss", 5.64035093}, {0, 6, "gradient", 170.693363}, {0, 7, "loss", 5.09046122}, {0, 7,
    "gradient", 142.006894}, {0, 8, "loss", 5.07971821}, {0, 8, "gradient", 146.819}, {0, 9, "loss",
    4.96486862}, {0, 9, "gradient", 150.180533}, {1, 0, "loss", 3.18629279}, {1, 0, "gradient",
    50.0572968}, {1, 1, "loss", 2.72222828}, {1, 1, "gradient", 50.1737587}, {1, 2, "loss",
    2.8660345}, {1, 2, "gradient", 50.7493783}, {1, 3, "loss", 3.40808215}, {1, 3, "gradient",
    51.8019318}, {1, 4, "loss", 2.62040463}, {1, 4, "gradient", 52.3427755}, {1, 5, "loss",
    3.13293024}, {1, 5, "gradient", 53.467171}, {1, 6, "loss", 0.779613188}, {1, 6, "gradient",
    29.5638685}, {1, 7, "loss", 2.19218318}, {1, 7, "gradient", 47.2871984}, {1, 8, "loss",
    3.15236707}, {1, 8, "gradient", 47.9067317}, {1, 9, "loss", 2.52889298}, {1, 9, "gradient",
    44.9670785}, {2, 0, "loss", 1.14221761}, {2, 0, "ce", 1.33119829}, {2, 0, "dice", 0.95323693},
    {2, 0, "gradient", 1.7586593}, {2, 1, "loss", 1.00721004}, {2, 1, "ce", 1.07549222}, {2, 1,
    "dice", 0.938927866}, {2, 1, "gradient", 0.507198971}, {2, 2, "loss", 1.25725507}, {2, 2, "ce",
    1.5622649}, {2, 2, "dice", 0.952245246}, {2, 2, "gradient", 1.1316553}, {2, 3, "loss",
    1.12974883}, {2, 3, "ce", 1.31641268}, {2, 3, "dice", 0.943084987}, {2, 3, "gradient",
    2.09806851}, {2, 4, "loss", 1.15074951}, {2, 4, "ce", 1.33504263}, {2, 4, "dice", 0.966456389},
    {2, 4, "gradient", 1.71962136}, {2, 5, "loss", 1.01340832}, {2, 5, "ce", 1.08825026}, {2, 5,
    "dice", 0.93856638}, {2, 5, "gradient", 0.470384128}, {2, 6, "loss", 1.13491956}, {2, 6, "ce",
    1.331192}, {2, 6, "dice", 0.938647121}, {2, 6, "gradient", 1.95763594}, {2, 7, "loss",
    1.24814157}, {2, 7, "ce", 1.5436144}, {2, 7, "dice", 0.952668734}, {2, 7, "gradient",
    1.44026443}, {2, 8, "loss", 1.13906562}, {2, 8, "ce", 1.31694694}, {2, 8, "dice", 0.961184306},
    {2, 8, "gradient", 1.42516461}, {2, 9, "loss", 1.11441633}, {2, 9, "ce", 1.29797809}, {2, 9,
    "dice", 0.930854575}, {2, 9, "gradient", 1.5838196}
};
static const struct golden_note golden_notes_chaitanya_three[] = {
    {0, 0, "loss", 7.28038354}, {0, 0, "gradient", 220.137668}, {0, 1, "loss", 7.57163084}, {0, 1,
    "gradient", 263.085791}, {0, 2, "loss", 7.19105982}, {0, 2, "gradient", 240.709168}, {0, 3,
    "loss", 7.23462931}, {0, 3, "gradient", 249.362811}, {0, 4, "loss", 6.95835388}, {0, 4,
    "gradient", 250.94143}, {0, 5, "loss", 6.86350348}, {0, 5, "gradient", 279.578061}, {0, 6,
    "loss", 7.57224911}, {0, 6, "gradient", 184.510835}, {0, 7, "loss", 6.59664068}, {0, 7,
    "gradient", 269.928889}, {0, 8, "loss", 7.78533002}, {0, 8, "gradient", 224.867639}, {0, 9,
    "loss", 7.49541688}, {0, 9, "gradient", 256.624016}, {1, 0, "loss", 2.10621315}, {1, 0,
    "gradient", 32.34482}, {1, 1, "loss", 2.03766071}, {1, 1, "gradient", 34.9216189}, {1, 2,
    "loss", 2.30987204}, {1, 2, "gradient", 37.0226922}, {1, 3, "loss", 2.14168308}, {1, 3,
    "gradient", 36.4997342}, {1, 4, "loss", 2.23956973}, {1, 4, "gradient", 34.4592089}, {1, 5,
    "loss", 1.35379046}, {1, 5, "gradient", 24.4515161}, {1, 6, "loss", 3.36522837}, {1, 6,
    "gradient", 54.1901404}, {1, 7, "loss", 2.32454988}, {1, 7, "gradient", 32.9507324}, {1, 8,
    "loss", 2.22356119}, {1, 8, "gradient", 34.3015464}, {1, 9, "loss", 3.19426472}, {1, 9,
    "gradient", 51.9855467}, {2, 0, "loss", 1.0004246}, {2, 0, "ce", 1.1321048}, {2, 0, "dice",
    0.94399023}, {2, 0, "gradient", 0.422742289}, {2, 1, "loss", 0.996943228}, {2, 1, "ce",
    1.1325994}, {2, 1, "dice", 0.938804868}, {2, 1, "gradient", 0.393516099}, {2, 2, "loss",
    0.990729993}, {2, 2, "ce", 1.13180974}, {2, 2, "dice", 0.930267245}, {2, 2, "gradient",
    0.479697045}, {2, 3, "loss", 0.999734638}, {2, 3, "ce", 1.1321917}, {2, 3, "dice", 0.942967325},
    {2, 3, "gradient", 0.425400318}, {2, 4, "loss", 0.998166791}, {2, 4, "ce", 1.13207975}, {2, 4,
    "dice", 0.940775522}, {2, 4, "gradient", 0.407812549}, {2, 5, "loss", 1.00004051}, {2, 5, "ce",
    1.1322703}, {2, 5, "dice", 0.943370602}, {2, 5, "gradient", 0.429382128}, {2, 6, "loss",
    0.989640562}, {2, 6, "ce", 1.13221597}, {2, 6, "dice", 0.928536815}, {2, 6, "gradient",
    0.387833348}, {2, 7, "loss", 0.999104547}, {2, 7, "ce", 1.13219842}, {2, 7, "dice",
    0.942064316}, {2, 7, "gradient", 0.409615535}, {2, 8, "loss", 0.994486723}, {2, 8, "ce",
    1.13171792}, {2, 8, "dice", 0.935673353}, {2, 8, "gradient", 0.367472289}, {2, 9, "loss",
    0.998803356}, {2, 9, "ce", 1.13205249}, {2, 9, "dice", 0.941696585}, {2, 9, "gradient",
    0.391433319}
};
static const struct golden_run golden_runs_chaitanya[] = {
    {.name = "chaitanya_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_chaitanya_two, .n_notes = 80, .prototypes = NULL,
     .set = {.method = (char[]){"chaitanya"}, .seed = 101, .steps = 10, .patch = {32, 32, 32},
             .batch = 4, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_STEP, .lr
             = 4e-05, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 150.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25,
             .paste_size = 0.6666666666666666, .paste_weight = 0.5}},
    {.name = "chaitanya_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_chaitanya_three, .n_notes = 80, .prototypes = NULL,
     .set = {.method = (char[]){"chaitanya"}, .seed = 103, .steps = 10, .patch = {32, 16, 48},
             .batch = 8, .labeled_batch = 3, .filters = 2, .dropout = NET_DROPOUT_BOTTLENECK,
             .augment = AUGMENT_CROP, .dice_share = 0.7, .optimizer = OPTIM_SGD, .schedule =
             SCHEDULE_POLY, .lr = 1e-05, .momentum = 0.9, .weight_decay = 0.1, .clip = 5.0,
             .ema_decay = 0.99, .consistency = 150.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS,
             .sup_dice = 1, .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm
             = 0, .nb_rule = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap
             = 150, .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25,
             .paste_size = 0.6666666666666666, .paste_weight = 0.5}},
};
